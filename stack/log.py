"""The log of the whole stack: output of all roles, split into lines, on one stream, each behind its role's name."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

import orjson

from worker_config.logs import LogFormat, json_line

OWN_NAME = "stack"
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93)
_MAX_LINE_BYTES = 64 * 2**10


class LineSplitter:
    """Collects bytes until a line is complete. A line that never ends is cut, so that memory stays bounded."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, piece: bytes) -> list[str]:
        """The lines that `piece` completes, without their ends. Bytes that are not UTF-8 are replaced."""
        *lines, self._pending = (self._pending + piece).split(b"\n")
        if len(self._pending) >= _MAX_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        return [_decoded(line) for line in lines]

    def rest(self) -> list[str]:
        """The unfinished last line, if there is one."""
        rest, self._pending = self._pending, b""
        return [_decoded(rest)] if rest else []


class Log:
    """Writes to a terminal or a file; coloured names on a terminal only.

    In JSON, a line of a role that is an object stays as it is, because it says whose it is. Other lines, such as those
    of Redis, become the message of one.
    """

    def __init__(self, names: Sequence[str], stream: TextIO, log_format: LogFormat = "text") -> None:
        self._log_format = log_format
        all_names = (*names, OWN_NAME)
        width = max(len(name) for name in all_names)
        coloured = stream.isatty()
        self._stream = stream
        self._prefixes = {
            name: f"\x1b[{_COLOURS[i % len(_COLOURS)]}m{name:<{width}} |\x1b[0m " if coloured else f"{name:<{width}} | "
            for i, name in enumerate(all_names)
        }

    def write(self, name: str, line: str) -> None:
        """Writes one line of the role `name`."""
        if self._log_format == "text":
            line = f"{self._prefixes[name]}{line}"
        elif not line.startswith("{"):
            line = json_line(name, name, line)
        # The reader may be gone (`embedq up 2>&1 | head`). The service goes on without its log.
        with contextlib.suppress(BrokenPipeError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def write_own(self, line: str) -> None:
        """Writes one line of the supervisor."""
        self.write(OWN_NAME, line)


def message_of(line: str) -> str:
    """What a line of a role says, in whichever form."""
    with contextlib.suppress(orjson.JSONDecodeError):
        logged = orjson.loads(line)
        if isinstance(logged, dict):
            return str(logged.get("message", line))
    return line


def _decoded(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="replace")
