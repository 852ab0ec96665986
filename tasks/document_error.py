"""What is wrong with one document. A document that fails stops neither its neighbours nor its job."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import orjson

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

    @classmethod
    def of(cls, stored: Iterable[Any]) -> tuple[Self, ...]:
        """From lists of the fields of each."""
        return tuple(cls(code, message, tuple(pages)) for code, message, pages in stored)


MAX_WARNED_PAGES = 100
"""Of one warning. The message says how many there are in all."""


def warnings_to_json(warnings: Iterable[DocumentWarning]) -> str:
    """As a dataset stores them."""
    return orjson.dumps([[*warning] for warning in warnings]).decode()


def warnings_from_json(text: str) -> tuple[DocumentWarning, ...]:
    """Inverse of `warnings_to_json`."""
    return DocumentWarning.of(orjson.loads(text))
