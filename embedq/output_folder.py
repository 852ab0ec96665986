"""A local folder that follows a dataset on the server: its Parquet parts, and notes that name the dataset."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO

from embedq.atomic_file import atomic_file, synced_file
from embedq.concurrency import run_all
from embedq.errors import BadInputError
from embedq.ingestions import Listing, PartChangedError

NOTES = "_embedq.json"
DOWNLOADS = 4
"""Parts fetched at the same time."""
_LISTINGS = 20
"""An ingestion that goes on loading changes parts while they are fetched. What was fetched by then counts."""
_UNFINISHED = ".fetching"
_FOOTER = b"PAR1"

Lists = Callable[[], Awaitable[Listing]]
Fetch = Callable[[str, BinaryIO], Awaitable[None]]
"""Writes the part of a name into a file. Raises `PartChangedError`."""


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
        self._parts: Sequence[str] = notes.get("parts", [])

    @property
    def filled(self) -> bool:
        """Whether parts of its dataset are in it."""
        return bool(self._parts)

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
            f"{self._folder} holds {counted(len(self._parts))} of the dataset {self.dataset!r}. {self._server} "
            f"{state} of this name: it was deleted, or this is another server, API key or --data folder. "
            f"Nothing in {self._folder} was changed. Name the server that has it (--url), or begin anew: "
            "in another folder (--out), or in this one once you have deleted it"
        )

    async def follow(self, lists: Lists, fetch: Fetch) -> tuple[int, int]:
        """Makes the folder hold exactly the parts listed, beside files of others; how many, and how many were fetched.

        All parts are fetched before the first becomes visible. Raises whatever `require_same`, `lists` and `fetch`
        raise, or `BadInputError`: the parts go on changing. The folder is then as before.
        """
        fetched: dict[str, bool] = {}
        try:
            listing = await self._fetch_all(lists, fetch, fetched)
            new = [name for name in listing.parts if name in fetched]
            for name in new:
                self._unfinished(name).replace(self._folder / name)
        finally:
            for name in fetched:
                self._unfinished(name).unlink(missing_ok=True)
        for name in set(self._parts).difference(listing.parts):
            (self._folder / name).unlink(missing_ok=True)
        self._parts = listing.parts
        self._dataset_id = listing.dataset_id
        self._write_notes()
        return len(listing.parts), len(new)

    async def _fetch_all(self, lists: Lists, fetch: Fetch, fetched: dict[str, bool]) -> Listing:
        """The list whose parts are all here or in `fetched`, which it fills: whether each is whole."""

        async def fetch_part(name: str) -> None:
            fetched[name] = False
            with synced_file(self._unfinished(name)) as file:
                await fetch(name, file)
            fetched[name] = True

        dataset_id = None
        for _ in range(_LISTINGS):
            listing = await lists()
            self.require_same(listing.dataset_id)
            self.claim()
            if listing.dataset_id != dataset_id:  # deleted and made anew, which may give a name to other rows
                dataset_id = listing.dataset_id
                fetched.update(dict.fromkeys(fetched, False))
            missing = [name for name in listing.parts if not (fetched.get(name) or self._has(name))]
            try:
                await run_all(fetch_part, missing, limit=DOWNLOADS)
            except PartChangedError:
                continue
            if not missing or (await lists()).dataset_id == dataset_id:
                return listing
        raise BadInputError(
            f"The dataset {self.dataset!r} has changed {_LISTINGS} times while it was fetched; try again when no "
            f"ingestion loads into it. {self._folder} is as before"
        )

    def _has(self, name: str) -> bool:
        file = self._folder / name
        return name in self._parts and file.is_file() and _is_whole(file)

    def _unfinished(self, name: str) -> Path:
        return self._folder / (name + _UNFINISHED)

    def _write_notes(self) -> None:
        notes = {
            "server": self._server,
            "dataset": self.dataset,
            "dataset_id": self._dataset_id,
            "parts": list(self._parts),
        }
        with atomic_file(self._folder / NOTES) as file:
            file.write(json.dumps(notes, indent=1).encode())


def counted(parts: int) -> str:
    """So many Parquet files, in words."""
    return "1 Parquet file" if parts == 1 else f"{parts} Parquet files"


def _is_whole(file: Path) -> bool:
    """Whether it ends as Parquet does."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - len(_FOOTER)))
        return opened.read() == _FOOTER


def _read(file: Path) -> Mapping[str, Any]:
    try:
        notes = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (JSONDecodeError, UnicodeDecodeError):
        notes = None
    if not isinstance(notes, dict) or not isinstance(notes.get("parts", []), list):
        raise BadInputError(f"{file} is damaged; delete it to begin anew in this folder") from None
    return notes
