"""Stands in for the reader that is written elsewhere."""

from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.refusals import corrupt


def read_mail(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def read_mbox(data: bytes) -> Extracted:
    """Nothing."""
    raise corrupt(f"{len(data)} bytes")


def is_mail(head: bytes) -> bool:
    """Headers of a mail."""
    line = head.lstrip(b"\xef\xbb\xbf\r\n \t").split(b":")[0].lower()
    return line in {b"subject", b"from", b"date", b"received", b"return-path", b"mime-version", b"to"}


def is_mbox(head: bytes) -> bool:
    """The line between two mails."""
    return head.startswith(b"From ")
