"""Files as the ledger knows them: a record each. Their bytes are in the storage, under the record's `stored` name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Self

import uuid_utils

from tasks.errors import QuotaExceeded

FOLDER = "files"
"""Where all of them are in the storage."""

_ID = re.compile(r"file-[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


class Purpose(StrEnum):
    """What a file is for. All but the last may be uploaded; OpenAI's names."""

    ASSISTANTS = "assistants"
    BATCH = "batch"
    EVALS = "evals"
    FINE_TUNE = "fine-tune"
    USER_DATA = "user_data"
    VISION = "vision"
    BATCH_OUTPUT = "batch_output"


class Order(StrEnum):
    """By time of creation."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of one owner.

    Attributes:
        id: `file-` and 32 hexadecimal digits.
        owner: name of the API key it belongs to; nobody else sees it.
        filename: as the client called it; never used as a path.
        size_bytes: size of the stored object.
        created_ms: Unix milliseconds.
        expires_ms: likewise; None: when it is deleted.
        stored: name in the storage.
    """

    id: str
    owner: str
    filename: str
    purpose: Purpose
    size_bytes: int
    created_ms: int
    expires_ms: int | None
    stored: str

    @classmethod
    def from_fields(cls, file_id: str, fields: Mapping[str, bytes]) -> Self:
        """From the fields of its Redis hash."""
        return cls(
            id=file_id,
            owner=fields["owner"].decode(),
            filename=fields["filename"].decode(),
            purpose=Purpose(fields["purpose"].decode()),
            size_bytes=int(fields["size"]),
            created_ms=int(fields["created"]),
            expires_ms=int(fields["expires"]) or None,
            stored=fields["stored"].decode(),
        )


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some files of one owner in the order asked for. `next`: the cursor for those behind; None at the end."""

    files: tuple[FileRecord, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Quota:
    """What one owner may store."""

    max_bytes: int
    max_files: int

    def refused(self, reply: Sequence[Any], *, and_datasets: bool = False) -> QuotaExceeded:
        """The error for the reply `quota` of a script: it has the bytes and the number of files that there are."""
        datasets = " and your datasets" if and_datasets else ""
        return QuotaExceeded(
            f"Your {int(reply[2]):,} files{datasets} hold {int(reply[1]):,} bytes; {self.max_files:,} files and "
            f"{self.max_bytes:,} bytes in all are allowed. Delete some first."
        )


def new_file_id() -> str:
    """A fresh id: `file-` and a UUIDv7, so that ids sort by time."""
    return f"file-{uuid_utils.uuid7().hex}"


def file_id_from(created_ms: int, seed: str) -> str:
    """The id of a file that is made again and again until it succeeds: the same for the same arguments.

    `created_ms` must be the record's own, for the list of files relies on it.
    """
    digest = bytearray(sha256(seed.encode()).digest()[:10])
    digest[0] = 0x70 | digest[0] & 0x0F  # version 7
    digest[2] = 0x80 | digest[2] & 0x3F  # and the variant of RFC 9562
    return f"file-{created_ms:012x}{digest.hex()}"


def created_ms(file_id: str) -> int | None:
    """Unix milliseconds at which a file with this id was made; None when it is not an id of ours."""
    return int(file_id[5:17], 16) if _ID.fullmatch(file_id) else None


def stored_name(file_id: str, fence: str = "") -> str:
    """Where a file's bytes go.

    `fence`: of the claim that writes them, so that a worker taken for dead cannot replace what its successor wrote.
    """
    return f"{FOLDER}/{file_id}.{fence}" if fence else f"{FOLDER}/{file_id}"


def file_id_of(stored: str) -> str:
    """The id in a stored name."""
    return stored.removeprefix(f"{FOLDER}/").partition(".")[0]
