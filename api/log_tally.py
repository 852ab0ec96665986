"""Counts frequent events and logs them now and then. Otherwise anybody could cause a line per request."""

import asyncio
import logging
from collections import Counter

_MAX_KINDS = 20


class Tally:
    """Says at once what happened first, and then once a minute what happened how often meanwhile; in an event loop."""

    def __init__(self, log: logging.Logger, what: str, interval_s: float = 60) -> None:
        self._log = log
        self._what = what
        self._interval_s = interval_s
        self._counts: Counter[str] = Counter()
        self._waits = False

    def add(self, why: str) -> None:
        """One more of this kind. Of many kinds the later ones are counted together."""
        self._counts[why if why in self._counts or len(self._counts) < _MAX_KINDS else "others"] += 1
        if not self._waits:
            self._tell()

    def _tell(self) -> None:
        self._waits = bool(self._counts)
        if self._waits:
            counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(self._counts.items()))
            self._counts.clear()
            self._log.warning("%s: %s", self._what, counts)
            asyncio.get_running_loop().call_later(self._interval_s, self._tell)
