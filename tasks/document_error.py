"""What is wrong with one document. A document that fails stops neither its neighbours nor its job."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

FailureStage: TypeAlias = Literal["listing", "reading", "parsing", "chunking", "embedding", "loading"]


@dataclass(frozen=True, slots=True)
class DocumentError:
    """Why a document failed.

    Attributes:
        code: stable, such as `password_protected`.
        message: one or two sentences for the document's owner: what is wrong and what to do. Never its text.
        stage: where it failed.
    """

    code: str
    message: str
    stage: FailureStage


class DocumentFailed(Exception):
    """One document cannot be ingested; `error` says why."""

    def __init__(self, code: str, message: str, stage: FailureStage) -> None:
        super().__init__(f"{stage}: {code}")
        self.error = DocumentError(code, message, stage)


class DocumentWarning(NamedTuple):
    """What could not be read of a document, of which the rest was read.

    Attributes:
        code: stable, such as `pages_without_text`.
        message: one sentence for the document's owner: what is missing and what to do. Never its text.
        pages: where, counted from 1; at most `MAX_WARNED_PAGES` of them. Empty: the document as a whole.
    """

    code: str
    message: str
    pages: tuple[int, ...] = ()


MAX_WARNED_PAGES = 100
"""Of one warning. The message says how many there are in all."""
