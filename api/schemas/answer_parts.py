"""Parts that the answers of several resources have."""

import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tasks.errors import Invalid
from tasks.item import size_bytes

T = TypeVar("T")

_MAX_METADATA_BYTES = 4096


def _small(metadata: object) -> object:
    # Before pydantic looks at the pairs, of which there may be 100,000: it would list each fault.
    if isinstance(metadata, dict):
        size = sum(size_bytes(text) for pair in metadata.items() for text in pair if isinstance(text, str))
        if size > _MAX_METADATA_BYTES:
            raise Invalid(
                "invalid_value",
                f"metadata has {size:,} bytes of names and values; {_MAX_METADATA_BYTES:,} are taken.",
                param="metadata",
            )
    return metadata


Metadata = Annotated[dict[str, str] | None, BeforeValidator(_small)]
"""The client's own pairs: field `metadata` of a body. Raises `Invalid` above 4 KiB."""


class Shown(BaseModel):
    """What clients see of a record, read from its attributes."""

    model_config = ConfigDict(from_attributes=True)


Seconds = Annotated[int, AfterValidator(lambda milliseconds: milliseconds // 1000)]
"""Whole Unix seconds, as clients read times, of a record's milliseconds."""
NoneIfEmpty = BeforeValidator(lambda value: value or None)
"""For records in which "" and 0 stand for nothing."""


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Which page of a list is asked for. `after`: the id of the object behind which it begins; None: the first one."""

    after: str | None
    limit: int


class Page(BaseModel, Generic[T]):
    """A page in the form of OpenAI's lists."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None
    last_id: str | None = Field(description="Value of `after` for the next page.")
    has_more: bool

    @classmethod
    def of(cls, data: Sequence[T], *, more: bool, until: str | None = None, name: str = "id") -> Self:
        """The page with these objects.

        Args:
            data: in the order of the list.
            more: there may be more behind them.
            until: the place up to which was looked, if that is not the place of the last one.
            name: of the field that names the place of an object.
        """
        first, last = (getattr(data[0], name), getattr(data[-1], name)) if data else (None, None)
        return cls(data=[*data], first_id=first, last_id=until or last, has_more=more)


_prefix: ContextVar[str] = ContextVar("prefix", default="")
_SANE_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+/?")


def set_prefix(prefix: str) -> None:
    """Paths in the answer to this request begin with this prefix, if it is one."""
    _prefix.set(prefix.rstrip("/") if _SANE_PREFIX.fullmatch(prefix) else "")


def path_here(path: str) -> str:
    """The path as the client of this request sees it."""
    return _prefix.get() + path


class Deleted(BaseModel):
    """Confirms that something is deleted."""

    id: str
    object: str
    deleted: Literal[True] = True


class Counts(Shown):
    """How many texts or requests there are, and how many have ended in which way."""

    total: int
    completed: int
    failed: int


class Usage(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Reason(Shown):
    """Why something failed; `code` is stable."""

    code: str
    message: str


class DocumentWarning(Shown):
    """What could not be read of a document, of which the rest was read; `code` is stable."""

    code: str
    message: str
    pages: list[int] = Field(description="The first 100 of them, counted from 1; none: the document as a whole.")


def unix_seconds(milliseconds: int | None) -> int | None:
    """Whole seconds, as clients read times; None stays None."""
    return None if milliseconds is None else milliseconds // 1000
