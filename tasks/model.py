"""What a worker serves: a model as it was loaded, and the names under which callers know it."""

import dataclasses
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self, TypeVar, cast

import orjson

T = TypeVar("T")

_STAMP_DIGITS = 12


def from_json(kind: type[T], data: bytes) -> T:
    """A dataclass whose fields stand in a JSON object; those of a newer version are ignored."""
    names = {field.name for field in dataclasses.fields(cast("Any", kind))}
    return kind(**{name: value for name, value in orjson.loads(data).items() if name in names})


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model: what it says of itself, and what its worker adds. As stored in Redis it outlives the worker.

    Attributes:
        model: hub id or folder name it was loaded from.
        revision: 12 hexadecimal digits of the content of the files that loading reads, or `fake`.
        dimension: length of its vectors.
        max_tokens: longest input, prompt and special tokens included; `UNLIMITED_TOKENS`: nothing is cut.
        prompts: names that `prompt_name` may take.
        device: `cpu`, `cuda:0`, …
        compute: `openvino`, `torch` or `fake`.
        precision: `float32`, `float16` or `bfloat16`.
        query_prompt, document_prompt: the names of the prompts for them (`encoder/prompts.py`); None: the model's
            default prompt, if it has one.
        similarity: what its vectors are compared by: `cosine`, `dot`, `euclidean` or `manhattan`.
        id: the name under which it is served; "" as long as nobody serves it.
        aliases: other names for it, as its worker's EMBEDQ_SERVED_NAME has them.
        created_at: Unix seconds at which it was first registered as it is.
    """

    model: str
    revision: str
    dimension: int
    max_tokens: int
    prompts: tuple[str, ...]
    device: str
    compute: str
    precision: str
    query_prompt: str | None = None
    document_prompt: str | None = None
    similarity: str = "cosine"
    id: str = ""
    aliases: tuple[str, ...] = ()
    created_at: int = 0

    @property
    def made_by(self) -> str:
        """What made its vectors, in words: those of models with the same ones can be compared."""
        return f"{self.model} (revision {self.revision})"

    @property
    def stamp(self) -> str:
        """12 hexadecimal digits: vectors of models with the same ones may be mixed, however they are computed."""
        return sha256(f"{self.model} {self.revision} {self.dimension}".encode()).hexdigest()[:_STAMP_DIGITS]

    def to_json(self) -> bytes:
        """As stored in Redis."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Inverse of `to_json`; fields of a newer version are ignored."""
        model = from_json(cls, data)
        return dataclasses.replace(model, prompts=tuple(model.prompts), aliases=tuple(model.aliases))
