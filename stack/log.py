"""The log of the whole stack: the lines of all roles on one stream, each behind its role's name."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

OWN_NAME = "stack"
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93)


class Log:
    """Writes to a terminal or a file; coloured names on a terminal only."""

    def __init__(self, names: Sequence[str], stream: TextIO) -> None:
        all_names = (*names, OWN_NAME)
        width = max(len(name) for name in all_names)
        coloured = stream.isatty()
        self._stream = stream
        self._prefixes = {
            name: f"\x1b[{_COLOURS[i % len(_COLOURS)]}m{name:<{width}} |\x1b[0m " if coloured else f"{name:<{width}} | "
            for i, name in enumerate(all_names)
        }

    def write(self, name: str, line: str) -> None:
        """One line of the role `name`."""
        # Nobody reads any more (`embedq up 2>&1 | head`): the service goes on without its log.
        with contextlib.suppress(BrokenPipeError):
            self._stream.write(f"{self._prefixes[name]}{line}\n")
            self._stream.flush()

    def say(self, line: str) -> None:
        """One line of the supervisor's own."""
        self.write(OWN_NAME, line)
