"""Where things are printed: results on stdout, everything about them on stderr; lines for people or JSON lines."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embedq.cli.exits import UsageError
from embedq.errors import EmbedqClientError

NOWHERE = "there is nowhere to print the results: the standard output is closed"


@dataclass
class Output:
    """Prints in one of the two forms.

    Attributes:
        results: how many have been printed.
    """

    json_lines: bool
    results: int = 0
    _noted: set[str] = field(default_factory=set)

    def result(self, text: str, fields: Mapping[str, Any]) -> None:
        """One result: `text` for people, `fields` for programs."""
        # Written out at once: whoever reads a pipe wants the first id while later ones are still being made.
        if sys.stdout is None:
            raise UsageError(NOWHERE)
        print(_json(fields) if self.json_lines else text, flush=True)
        self.results += 1

    def note(self, text: str, **fields: Any) -> None:
        """A remark on stderr."""
        line = json.dumps({"event": "note", "message": text, **fields}) if self.json_lines else f"embedq: {text}"
        print(line, file=sys.stderr, flush=True)

    def problem(self, message: str, code: str) -> None:
        """An error of this side on stderr; `code` is for programs."""
        self._error({"code": code, "message": message}, message)

    def error(self, error: EmbedqClientError) -> None:
        """An error of the server, or of the way there, on stderr."""
        request = f" (request {error.request_id})" if error.request_id else ""
        self._error(
            {
                "code": error.code,
                "message": error.message,
                "param": error.param,
                "status": error.status,
                "request_id": error.request_id,
            },
            f"{error.code}: {error.message}{request}",
        )

    def retry(self, error: EmbedqClientError, delay_s: float) -> None:
        """Says that a call is being repeated; once per reason."""
        if error.code not in self._noted:
            self._noted.add(error.code)
            self.note(f"{error.code}, trying again", code=error.code, delay_s=round(delay_s, 1))

    def _error(self, fields: Mapping[str, Any], text: str) -> None:
        line = json.dumps({"event": "error", **fields}) if self.json_lines else f"embedq: {text}"
        print(line, file=sys.stderr, flush=True)


def digits(vector: Iterable[float]) -> list[float]:
    """Numbers of 32 bits with the digits that they have: nine say all, Python would print up to seventeen."""
    return [float(f"{number:.9g}") for number in vector]


def _json(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return json.dumps(fields)
    return text
