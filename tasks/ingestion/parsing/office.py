"""Stands in for the reader that is written elsewhere."""

from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.refusals import corrupt


def read_pptx(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_epub(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_odt(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_rtf(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_msg(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_rst(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")
