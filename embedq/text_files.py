"""Files of texts that `submit` reads, and the folder of texts and vectors that it writes."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from embedq.errors import BadInputError, EmbedqClientError

VECTORS = "embeddings.npy"
TEXTS = "texts.jsonl"
_BOM = b"\xef\xbb\xbf"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Record:
    """One text of a file.

    Attributes:
        line: its line, from 1.
        id: as given in JSON lines; None otherwise.
    """

    line: int
    text: str
    id: str | int | None = None


def read_records(lines: Iterable[bytes], *, jsonl: bool = False) -> Iterator[Record]:
    """The texts of a file opened in binary mode, in order. Lines of white space are passed over.

    Raises:
        BadInputError: a line is not UTF-8, or not a JSON object with a string in "text" or "input".
    """
    for number, raw in enumerate(lines, start=1):
        try:
            line = (raw.removeprefix(_BOM) if number == 1 else raw).decode().rstrip("\r\n")
            if line.strip():
                yield Record(number, *_text_and_id(line)) if jsonl else Record(number, line)
        except UnicodeDecodeError as error:
            message = f"not UTF-8 (byte {error.start + 1}); convert the file first"
            raise BadInputError(f"line {number}: {message}") from None
        except (JSONDecodeError, RecursionError) as error:
            raise BadInputError(f"line {number}: not JSON ({error})") from None
        except BadInputError as error:
            raise BadInputError(f"line {number}: {error}") from None


def _text_and_id(line: str) -> tuple[str, str | int | None]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise BadInputError('must be an object with the text in "text" or "input"')
    text = value.get("text", value.get("input"))
    if not isinstance(text, str) or not text:
        raise BadInputError('needs a non-empty string in "text" or "input"')
    record_id = value.get("id")
    if isinstance(record_id, bool) or not isinstance(record_id, str | int | None):
        raise BadInputError('"id" must be a string or an integer')
    return text, record_id


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write bytes to, which replaces `path` at the end of the block, on disk by then.

    After an exception in the block, `path` is as it was before, and no other file is left.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)  # the name that the user gave
        raise
    finally:
        part.unlink(missing_ok=True)


AddRows = Callable[[Sequence[Record], Floats, Mapping[int, Mapping[str, str]]], None]
"""Adds a row per record, with errors by index. An array without columns (nothing succeeded) becomes rows of NaN."""


@contextmanager
def vector_folder(folder: Path) -> Iterator[AddRows]:
    """A folder of `embeddings.npy` and, row for row, `texts.jsonl`; how many rows there will be need not be known.

    It is made. Its files replace older ones at the end of the block, or not at all. Raises `EmbedqClientError` in the
    block where rows are not as long as those before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = dimension = 0
    with atomic_file(folder / TEXTS) as texts, atomic_file(folder / VECTORS) as vectors:

        def write_header() -> None:
            # numpy leaves room in the header for the first axis to grow to any length, so its size does not change.
            vectors.seek(0)
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
            np.lib.format.write_array_header_1_0(vectors, header)
            vectors.seek(0, os.SEEK_END)

        def write(array: npt.NDArray[np.floating]) -> None:
            vectors.write(np.ascontiguousarray(array, dtype="<f4").tobytes())

        def add(records: Sequence[Record], array: Floats, errors: Mapping[int, Mapping[str, str]]) -> None:
            nonlocal rows, dimension
            count, width = array.shape
            if width and not dimension:
                dimension = width
                write_header()
                write(np.full((rows, width), np.nan))
            if width not in {0, dimension}:
                message = f"rows of {width} numbers after rows of {dimension}: the model has changed"
                raise EmbedqClientError(message, code="model_changed")
            write(array if width else np.full((count, dimension), np.nan))
            for index, record in enumerate(records):
                line: dict[str, Any] = {"row": rows + index, "line": record.line, "text": record.text}
                line |= {} if record.id is None else {"id": record.id}
                line |= {"error": errors[index]} if index in errors else {}
                texts.write(json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
            rows += count

        yield add
        write_header()
