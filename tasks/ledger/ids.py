"""Ids of tasks and records: a prefix and a UUIDv7 (RFC 9562), whose first 48 bits are the time. So ids sort by time."""

import re
from hashlib import sha256

import uuid_utils

_TIME_DIGITS = 12


class RecordIds:
    """Ids of one kind, tasks among them: `prefix` and 32 hexadecimal digits."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._form = re.compile(re.escape(prefix) + r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")

    def new(self) -> str:
        """A fresh id."""
        return f"{self._prefix}{uuid_utils.uuid7().hex}"

    def made_from(self, created_ms: int, seed: str) -> str:
        """The id of what is made again and again until it succeeds: the same for the same arguments."""
        digest = bytearray(sha256(seed.encode()).digest()[:10])
        digest[0] = 0x70 | digest[0] & 0x0F  # version 7
        digest[2] = 0x80 | digest[2] & 0x3F  # and the variant of RFC 9562
        return f"{self._prefix}{created_ms:0{_TIME_DIGITS}x}{digest.hex()}"

    def fits(self, text: str) -> bool:
        """Whether it has the form of our ids."""
        return self._form.fullmatch(text) is not None

    def created_ms(self, text: str) -> int | None:
        """Unix milliseconds at which an id was made; None when it is not an id of ours."""
        start = len(self._prefix)
        return int(text[start : start + _TIME_DIGITS], 16) if self.fits(text) else None


_TASKS = RecordIds("task_")
new_task_id = _TASKS.new
created_ms = _TASKS.created_ms
