"""Stands in for the reader that is written elsewhere."""

from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.refusals import corrupt


def read_pdf(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def is_pdf(data: bytes) -> bool:
    """At its start."""
    return data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n\f\0").startswith(b"%PDF-")


def holds_pdf(data: bytes) -> bool:
    """Behind something else."""
    return b"%PDF-" in data[:1024]
