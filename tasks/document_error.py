"""What is wrong with one document. A document that fails stops neither its neighbours nor its job."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
