"""What a command prints: results on stdout, notes and errors on stderr; lines for people or JSON lines. How it ends."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embedq import environment
from embedq.cli import exit_codes
from embedq.cli.exit_codes import UsageError
from embedq.errors import BadInputError, EmbedqClientError

_NO_KEY = 401
_BROKEN_PIPE = 141
"""As of a program that SIGPIPE ends."""
_ORDERS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?")


def printable(text: str) -> str:
    """Text that came from elsewhere, on one line: an escape sequence in it could do anything to a terminal."""
    return text.translate(_ORDERS)


@dataclass
class Output:
    """Prints in one of the two forms."""

    json_lines: bool
    _noted: set[str] = field(default_factory=set)

    def result(self, text: str, fields: Mapping[str, Any]) -> None:
        """One result: `text` for people, `fields` for programs."""
        if self.json_lines:
            text = json.dumps(fields, ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf"))
        else:
            text = _lines(text)
        # Flushed, because the reader of a pipe wants the first id while later ones are still being made.
        print(text, flush=True)

    def note(self, text: str, **fields: Any) -> None:
        """A note on stderr."""
        self._on_stderr("note", text, {"message": text, **fields})

    def error(self, error: EmbedqClientError, name: str = "") -> None:
        """An error of the server, or of the way there, on stderr. `name`: of what it is about."""
        message = f"{name}: {error.message}" if name else error.message
        if error.status == _NO_KEY:  # the server speaks of headers
            is_set = environment.api_key() is not None
            message += (
                " The command sends the key that is in EMBEDQ_API_KEY."
                if is_set
                else " EMBEDQ_API_KEY is not set: set it to a key of this server."
            )
        request = f" (request {error.request_id})" if error.request_id else ""
        fields = {name: getattr(error, name) for name in ("code", "param", "status", "request_id")}
        self._on_stderr("error", f"{error.code}: {message}{request}", {"message": message, **fields})

    def failure(self, error: Exception) -> int:
        """Prints why a command cannot go on; the exit code."""
        if isinstance(error, EmbedqClientError):
            self.error(error)
            return exit_codes.exit_code(error)
        if isinstance(error, BrokenPipeError):
            # The reader has seen enough. Python would complain once more when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _BROKEN_PIPE
        code, message = "usage" if isinstance(error, UsageError) else "input", str(error)
        if isinstance(error, OSError):
            code, message = "system", error.strerror or str(error)
            message = f"{error.filename}: {message}" if error.filename else message
        self._on_stderr("error", message, {"code": code, "message": message})
        return exit_codes.USAGE

    def retry(self, error: EmbedqClientError, delay_s: float) -> None:
        """Says that a call is being repeated; once per reason."""
        if error.code not in self._noted:
            self._noted.add(error.code)
            self.note(f"{error.code}, trying again", code=error.code, delay_s=round(delay_s, 1))

    def _on_stderr(self, event: str, text: str, fields: Mapping[str, Any]) -> None:
        line = json.dumps({"event": event, **fields}) if self.json_lines else f"embedq: {_lines(text)}"
        print(line, file=sys.stderr, flush=True)


def run_command(args: argparse.Namespace) -> int:
    """Runs the command that was chosen; prints its error, if there is one; returns the exit code."""
    output = Output(args.json)
    try:
        code: int = args.run(args, output)
        sys.stdout.flush()
    except (EmbedqClientError, UsageError, BadInputError, OSError) as error:
        return output.failure(error)
    except KeyboardInterrupt:
        output.note("interrupted")  # what goes on was noted
        return exit_codes.INTERRUPTED
    return code


def digits(vector: Iterable[float]) -> list[float]:
    """Numbers of 32 bits, rounded to nine digits, which are enough for them. Python would print up to seventeen."""
    return [float(f"{number:.9g}") for number in vector]


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
