"""A local folder that follows a dataset on the server: its Parquet files, and notes that name the dataset."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from embedq.atomic_file import atomic_file, synced_file
from embedq.concurrency import run_all
from embedq.errors import BadInputError, NotFoundError

NOTES = "_embedq.json"
DOWNLOADS = 4
"""Files fetched at the same time."""
_LISTINGS = 20
"""An ingestion that goes on loading changes files while they are fetched. What was fetched by then counts."""
_UNFINISHED = ".fetching"
_FOOTER = b"PAR1"

Lists = Callable[[], Awaitable[Mapping[str, Any]]]
"""`dataset_id`, which differs from that of another dataset of the same name, and the files in `data`. Within a dataset
the same name stands for the same rows."""
Fetch = Callable[[str, BinaryIO], Awaitable[None]]
"""Writes the file of a name. Raises `NotFoundError` with the code `part_changed` when there is another in its place."""


class OutputFolder:
    """A folder of Parquet files. A second ingestion into it goes to the same dataset, so it costs only what changed.

    Attributes:
        dataset: name of the dataset that it follows; a fresh one for a new folder.

    Args:
        dataset: what it is to follow; None: what it has followed before.

    Raises:
        BadInputError: the folder's notes cannot be read, or it follows another dataset.
    """

    def __init__(self, folder: Path, server: str, dataset: str | None = None) -> None:
        self.folder = folder
        self._server = server
        notes = _read(folder / NOTES)
        self._fresh = not notes
        self._dataset_id: str | None = notes.get("dataset_id")
        followed = notes.get("dataset")
        if dataset and followed and followed != dataset:
            raise BadInputError(f"{folder} holds the dataset {followed!r}, not {dataset!r}; choose another folder")
        self.dataset: str = dataset or followed or f"vectors-{uuid.uuid4().hex[:12]}"
        self._names: Sequence[str] = notes.get("parts", [])

    @property
    def filled(self) -> bool:
        """Whether files of its dataset are in it."""
        return bool(self._names)

    def claim(self) -> None:
        """Makes the folder and notes the dataset, so that a run after one that was killed finds it again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_notes()

    def abandon(self) -> None:
        """Takes `claim` back, for a folder that follows nothing yet."""
        if self._fresh:
            (self.folder / NOTES).unlink(missing_ok=True)
            with suppress(OSError):  # it holds files of others
                self.folder.rmdir()

    def require_same(self, dataset_id: str | None) -> None:
        """Refuses another dataset of the same name: what is here would be deleted for what is there.

        Raises:
            BadInputError: the folder has followed a dataset with another id.
        """
        if not self.filled or self._dataset_id == dataset_id:
            return
        state = "has none" if dataset_id is None else "has another one"
        raise BadInputError(
            f"{self.folder} holds {counted(len(self._names))} of the dataset {self.dataset!r}. {self._server} "
            f"{state} of this name: it was deleted, or this is another server, API key or --data folder. "
            f"Nothing in {self.folder} was changed. Name the server that has it (--url), or begin anew: "
            "in another folder (--out), or in this one once you have deleted it"
        )

    async def follow(self, lists: Lists, fetch: Fetch) -> tuple[int, int]:
        """Makes the folder hold exactly the files listed, beside those of others; how many, and how many were fetched.

        All are fetched before the first becomes visible. Raises whatever `require_same`, `lists` and `fetch` raise, or
        `BadInputError`: the dataset goes on changing. The folder is then as before.
        """
        fetched: dict[str, bool] = {}
        try:
            names, dataset_id = await self._fetch_all(lists, fetch, fetched)
            new = [name for name in names if name in fetched]
            for name in new:
                self._unfinished(name).replace(self.folder / name)
        finally:
            for name in fetched:
                self._unfinished(name).unlink(missing_ok=True)
        for name in set(self._names).difference(names):
            (self.folder / name).unlink(missing_ok=True)
        self._names, self._dataset_id = names, dataset_id
        self._write_notes()
        return len(names), len(new)

    async def _fetch_all(
        self, lists: Lists, fetch: Fetch, fetched: dict[str, bool]
    ) -> tuple[Sequence[str], str | None]:
        """Names that are all here or in `fetched`, which it fills: whether each is whole; and the dataset's id."""

        async def fetch_one(name: str) -> None:
            fetched[name] = False
            with synced_file(self._unfinished(name)) as file:
                await fetch(name, file)
            fetched[name] = True

        dataset_id = None
        for _ in range(_LISTINGS):
            listing = await lists()
            names = [_own_name(part["name"]) for part in listing["data"]]
            self.require_same(listing["dataset_id"])
            self.claim()
            if listing["dataset_id"] != dataset_id:  # deleted and made anew, which may give a name to other rows
                dataset_id = listing["dataset_id"]
                fetched.update(dict.fromkeys(fetched, False))
            missing = [name for name in names if not (fetched.get(name) or self._has(name))]
            try:
                await run_all(fetch_one, missing, limit=DOWNLOADS)
            except NotFoundError as error:
                if error.code != "part_changed":
                    raise
                continue
            if not missing or (await lists())["dataset_id"] == dataset_id:
                return names, dataset_id
        raise BadInputError(
            f"The dataset {self.dataset!r} has changed {_LISTINGS} times while it was fetched; try again when no "
            f"ingestion loads into it. {self.folder} is as before"
        )

    def _has(self, name: str) -> bool:
        """Whether this file is here and ends as Parquet does."""
        file = self.folder / name
        if name not in self._names or not file.is_file():
            return False
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - len(_FOOTER)))
            return opened.read() == _FOOTER

    def _unfinished(self, name: str) -> Path:
        return self.folder / (name + _UNFINISHED)

    def _write_notes(self) -> None:
        notes = {"server": self._server, "dataset": self.dataset, "dataset_id": self._dataset_id}
        with atomic_file(self.folder / NOTES) as file:
            file.write(json.dumps({**notes, "parts": list(self._names)}, indent=1).encode())


def counted(files: int) -> str:
    """So many Parquet files, in words."""
    return "1 Parquet file" if files == 1 else f"{files} Parquet files"


def _own_name(name: str) -> str:
    if not _is_own(name):
        raise BadInputError(f"the server lists a file {name!r}, which leads out of the folder")
    return name


def _is_own(name: object) -> bool:
    return isinstance(name, str) and "/" not in name and not name.startswith(".")


def _are_own(names: object) -> bool:
    return isinstance(names, list) and all(map(_is_own, names))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        notes = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        notes = None
    if not isinstance(notes, dict) or not _are_own(notes.get("parts", [])):
        raise BadInputError(f"{file} is damaged; delete it to begin anew in this folder") from None
    return notes
