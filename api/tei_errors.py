"""The form that errors have on the paths of text-embeddings-inference (TEI): its statuses and its words for them."""

from typing import Literal

from tasks.errors import EmbedqError

TEI_PATHS = frozenset({"/", "/embed", "/info", "/health"})
"""Whatever goes wrong on these is told in TEI's form."""

Word = Literal["Validation", "Empty", "Overloaded", "Backend", "Unhealthy"]
_BY_CODE: dict[str, tuple[int, Word]] = {
    "empty_input": (400, "Empty"),
    "invalid_http": (400, "Validation"),
    # TEI knows no 503 for overload.
    "backlog_full": (429, "Overloaded"),
    "overloaded": (429, "Overloaded"),
    "storage_full": (429, "Overloaded"),
    "wait_timeout": (429, "Overloaded"),
}
_BY_STATUS: dict[int, tuple[int, Word]] = {
    400: (422, "Validation"),
    422: (424, "Backend"),  # the model has failed at a text
    429: (429, "Overloaded"),
    500: (500, "Backend"),
    503: (503, "Unhealthy"),
}


def in_teis_form(error: EmbedqError) -> tuple[int, dict[str, str]]:
    """Status and body of the answer to a request that ended in `error`."""
    status, word = _BY_CODE.get(error.code) or _BY_STATUS.get(error.status) or (error.status, "Validation")
    detail = error.detail
    # Their field is called `inputs`. A message begins with the field at fault, or names it early.
    if error.param is not None and error.param.partition("[")[0] == "input":
        detail = detail.replace(error.param, f"inputs{error.param.removeprefix('input')}", 1)
    return status, {"error": detail, "error_type": word}
