"""A local folder that follows a dataset on the server: its Parquet parts, and notes that name the dataset."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO

from embedq.atomic_file import atomic_file, synced_file
from embedq.concurrency import run_all
from embedq.errors import BadInputError
from embedq.ingestions import Listing, Part

NOTES = "_embedq.json"
DOWNLOADS = 4
"""Parts fetched at the same time."""
_UNFINISHED = ".fetching"

Fetch = Callable[[str, BinaryIO], Awaitable[None]]
"""Writes the part of a name into a file."""


class OutputFolder:
    """A folder of parts. A second ingestion into it goes to the same dataset, so that it costs only what changed.

    Attributes:
        dataset: name of the dataset that it follows, a fresh one for a new folder.

    Args:
        dataset: what it is to follow; None: what it has followed before.

    Raises:
        BadInputError: the folder's notes cannot be read, or it follows another dataset.
    """

    def __init__(self, folder: Path, server: str, dataset: str | None = None) -> None:
        self._folder = folder
        self._server = server
        notes = _read(folder / NOTES)
        self._fresh = not notes
        self._dataset_id: str | None = notes.get("dataset_id")
        followed = notes.get("dataset")
        if dataset and followed and followed != dataset:
            raise BadInputError(f"{folder} holds the dataset {followed!r}, not {dataset!r}; choose another folder")
        self.dataset: str = dataset or followed or f"vectors-{uuid.uuid4().hex[:12]}"
        self._etags: dict[str, str] = dict(notes.get("parts", {}))

    @property
    def filled(self) -> bool:
        """Whether parts of its dataset are in it."""
        return bool(self._etags)

    def claim(self) -> None:
        """Makes the folder and notes the dataset, so that a run after one that was killed finds it again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_notes()

    def abandon(self) -> None:
        """Takes `claim` back, for a folder that follows nothing yet."""
        if self._fresh:
            (self._folder / NOTES).unlink(missing_ok=True)
            with suppress(OSError):  # it holds files of others
                self._folder.rmdir()

    def require_same(self, dataset_id: str | None) -> None:
        """Refuses another dataset of the same name: what is here would be deleted for what is there.

        Raises:
            BadInputError: the folder has followed a dataset with another id.
        """
        if not self.filled or self._dataset_id == dataset_id:
            return
        state = "has none" if dataset_id is None else "has another one"
        raise BadInputError(
            f"{self._folder} holds {counted(len(self._etags))} of the dataset {self.dataset!r}. {self._server} "
            f"{state} of this name: it was deleted, or this is another server, API key or --data folder. "
            f"Nothing in {self._folder} was changed. Name the server that has it (--url), or begin anew: "
            "in another folder (--out), or in this one once you have deleted it"
        )

    async def follow(self, listing: Listing, fetch: Fetch) -> int:
        """Makes the folder hold exactly the parts listed, beside files of others; returns how many were fetched.

        All parts are fetched before the first becomes visible. Raises whatever `require_same` and `fetch` raise; the
        folder is then as before.
        """
        parts = listing.parts
        self.require_same(listing.dataset_id)
        self.claim()
        missing = [part for part in parts if not self._has(part)]
        try:
            await run_all(lambda part: self._fetch(part, fetch), missing, limit=DOWNLOADS)
            for part in missing:
                self._unfinished(part).replace(self._folder / part.name)
        finally:
            for part in missing:
                self._unfinished(part).unlink(missing_ok=True)
        for name in self._etags.keys() - {part.name for part in parts}:
            (self._folder / name).unlink(missing_ok=True)
        self._etags = {part.name: part.etag for part in parts}
        self._dataset_id = listing.dataset_id
        self._write_notes()
        return len(missing)

    async def _fetch(self, part: Part, fetch: Fetch) -> None:
        with synced_file(self._unfinished(part)) as file:
            await fetch(part.name, file)

    def _has(self, part: Part) -> bool:
        file = self._folder / part.name
        return self._etags.get(part.name) == part.etag and file.is_file() and file.stat().st_size == part.size_bytes

    def _unfinished(self, part: Part) -> Path:
        return self._folder / (part.name + _UNFINISHED)

    def _write_notes(self) -> None:
        parts = dict(sorted(self._etags.items()))
        notes = {"server": self._server, "dataset": self.dataset, "dataset_id": self._dataset_id, "parts": parts}
        with atomic_file(self._folder / NOTES) as file:
            file.write(json.dumps(notes, indent=1).encode())


def counted(parts: int) -> str:
    """So many Parquet files, in words."""
    return "1 Parquet file" if parts == 1 else f"{parts} Parquet files"


def _read(file: Path) -> Mapping[str, Any]:
    try:
        notes = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (JSONDecodeError, UnicodeDecodeError):
        notes = None
    if not isinstance(notes, dict) or not isinstance(notes.get("parts", {}), dict):
        raise BadInputError(f"{file} is damaged; delete it to begin anew in this folder") from None
    return notes
