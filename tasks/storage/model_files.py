"""What a model worker leaves in the storage for those who count tokens without a model: its tokenizer and its prompts.

They lie under the model's revision, never change, and stay: no sweep looks into their folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson

from tasks.errors import NotStored
from tasks.storage.storage import Storage

_FOLDER = "models"


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model puts before texts.

    Attributes:
        texts: by name.
        default: the name that counts where none is given; None: nothing is put before such texts.
    """

    texts: Mapping[str, str]
    default: str | None = None

    def text(self, name: str | None) -> str:
        """What is put before a text with this prompt name; raises `KeyError` for a name that the model has not."""
        chosen = name if name is not None else self.default
        return self.texts[chosen] if chosen is not None else ""

    def to_json(self) -> bytes:
        """As stored."""
        return orjson.dumps({"prompts": dict(self.texts), "default": self.default})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Inverse of `to_json`."""
        fields: dict[str, Any] = orjson.loads(data)
        return cls(fields["prompts"], fields["default"])


def has_model_files(storage: Storage, revision: str) -> bool:
    """Whether both are there; raises `StorageUnavailable`."""
    try:
        storage.size_bytes(_tokenizer_name(revision))
        storage.size_bytes(_prompts_name(revision))
    except NotStored:
        return False
    return True


def write_model_files(storage: Storage, revision: str, tokenizer_json: bytes, prompts: Prompts) -> None:
    """Stores both; raises `StorageUnavailable` or `DiskFull`."""
    storage.write(_prompts_name(revision), prompts.to_json())
    storage.write(_tokenizer_name(revision), tokenizer_json)


def read_tokenizer(storage: Storage, revision: str) -> bytes:
    """A tokenizer as the JSON of the library `tokenizers`, neither cutting nor padding.

    Raises:
        NotStored: no worker with this model has been ready while the storage was there.
        StorageUnavailable: it does not answer now.
    """
    return storage.read(_tokenizer_name(revision))


def read_prompts(storage: Storage, revision: str) -> Prompts:
    """The prompts; raises like `read_tokenizer`."""
    return Prompts.from_json(storage.read(_prompts_name(revision)))


def _tokenizer_name(revision: str) -> str:
    return f"{_FOLDER}/{revision}/tokenizer.json"


def _prompts_name(revision: str) -> str:
    return f"{_FOLDER}/{revision}/prompts.json"
