"""Everything the client raises, as one tree.

EmbedqClientError
├── UnreachableError              no answer: refused, reset, silent
├── WaitTimeoutError              the caller's time ran out; the work goes on
└── RefusedError                  the server answered with an error
    ├── NotAuthenticatedError     401, 403
    ├── NotFoundError             404, 410
    └── UnavailableError          429 that may pass, 503, after repetitions

BadInputError                     an input file or folder cannot be used; nothing was sent because of it
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_INPUT = re.compile(r"\binput\[(\d+)\]")


class EmbedqClientError(Exception):
    """Base of all errors of the client.

    Attributes:
        message: one or two sentences: what is wrong and what to do.
        code: stable word for programs, the server's where there is one.
        status: HTTP status, or None when there was no answer.
        param: the field at fault, as in `input[3]`.
        request_id: the server's id of the request, for its log.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        param: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.param = param
        self.request_id = request_id

    def __str__(self) -> str:
        return self.message

    @property
    def input_index(self) -> int | None:
        """Index of the text at fault, when the server named one."""
        match = _INPUT.match(self.param or "")
        return int(match[1]) if match else None

    def shift(self, first: int) -> None:
        """Counts `input[i]` in a list in which the request's texts began at `first`."""

        def shifted(text: str) -> str:
            return _INPUT.sub(lambda match: f"input[{int(match[1]) + first}]", text)

        self.message = shifted(self.message)
        self.param = self.param and shifted(self.param)


class UnreachableError(EmbedqClientError):
    """Nothing answers at the address."""


class WaitTimeoutError(EmbedqClientError):
    """The time that the caller gave is over. Submitted work goes on."""


class RefusedError(EmbedqClientError):
    """The server answered with an error."""


class NotAuthenticatedError(RefusedError):
    """No API key, a wrong one, or one that may not do this."""


class NotFoundError(RefusedError):
    """No such task, model or route, or the task is past its retention."""


class UnavailableError(RefusedError):
    """The server cannot do this now."""


class BadInputError(ValueError):
    """An input file or folder cannot be used. The message names it."""


_KINDS: dict[int, type[RefusedError]] = {
    401: NotAuthenticatedError,
    403: NotAuthenticatedError,
    404: NotFoundError,
    410: NotFoundError,
    429: UnavailableError,
    503: UnavailableError,
}


def error_from_response(response: "httpx.Response") -> EmbedqClientError:
    """The error that a response with an error status stands for."""
    status = response.status_code
    kind: type[EmbedqClientError] = _KINDS.get(status, RefusedError)
    if status == 429 and response.headers.get("x-should-retry") == "false":  # noqa: PLR2004
        kind = RefusedError  # alone above a limit of the key: it will never fit
    try:
        error = dict(response.json()["error"])
    except (ValueError, TypeError, KeyError):  # a proxy answers with HTML, nothing, or JSON of its own
        error = {}
    if error.get("code") == "wait_timeout":
        kind = WaitTimeoutError
    unsaid = f"The server answered {status} without saying why. Is the address that of an embedq server?"
    return kind(
        error.get("message") or unsaid,
        code=error.get("code") or "unexpected_answer",
        status=status,
        param=error.get("param"),
        request_id=response.headers.get("x-request-id"),
    )
