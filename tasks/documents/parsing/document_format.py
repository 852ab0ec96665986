"""A format of documents: how a file of it is recognised, and what reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tasks.documents.parsing.parsed_document import Parsed


def _never(_: bytes) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """One entry of `parsers.FORMATS`.

    Attributes:
        media_type: names the format in `Parsed` and between the worker and its parsing process.
        name: for messages, such as "plain text".
        content: what files of it hold. The bytes of `binary` ones decide; `text` is told by its ending first.
        parse: the document's text and structure. Raises `DocumentFailed`. Imports its library when it is first called.
        endings: of names, with the dot. Under a `binary` one nothing else is read.
        recognises: whether a file is of it: of `binary` ones all of its bytes, of text its first characters in lower
            case, as they come in ASCII.
        behind_junk: whether a `binary` file may be of it behind bytes of something else. It counts under its own name,
            and in what is no text: text may tell of the format.
        harmless: read by Python alone, in time linear in its size: small documents need no process of their own.
    """

    media_type: str
    name: str
    content: Literal["text", "binary"]
    parse: Callable[[bytes], Parsed]
    endings: tuple[str, ...] = ()
    recognises: Callable[[bytes], bool] = _never
    behind_junk: Callable[[bytes], bool] = _never
    harmless: bool = False
