"""A local folder that follows a dataset on the server: its Parquet files, and notes that name the dataset."""

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from embedq.errors import BadInputError, NotFoundError
from embedq.ingestions import Ingestions
from embedq.many import run_all
from embedq.text_files import atomic_file

NOTES = "_embedq.json"
DOWNLOADS = 4
"""Files fetched at the same time."""
_ABANDONED_S = 86_400.0
_LISTINGS = 20
"""An ingestion that goes on loading changes files while they are fetched. What was fetched by then counts."""


class OutputFolder:
    """A folder of Parquet files. A second ingestion into it goes to the same dataset, so it costs only what changed.

    Attributes:
        dataset: name of the dataset that it follows; a fresh one for a new folder.
        parts: names of its files, which stand for the same rows as long as the dataset has them.

    Args:
        dataset: what it is to follow; None: what it has followed before.

    Raises:
        BadInputError: the folder's notes cannot be read, or it holds another dataset.
    """

    def __init__(self, folder: Path, server: str, dataset: str | None = None) -> None:
        self.folder = folder
        self._server = server
        notes = _read(folder / NOTES)
        self._dataset_id: str | None = notes.get("dataset_id")
        self.parts: list[str] = notes.get("parts", [])
        followed = notes.get("dataset")
        if dataset and self.parts and followed != dataset:
            raise BadInputError(f"{folder} holds the dataset {followed!r}, not {dataset!r}; choose another folder")
        self.dataset: str = dataset or followed or f"vectors-{uuid.uuid4().hex[:12]}"

    def claim(self) -> None:
        """Makes the folder and notes the dataset, so that a run after one that was killed finds it again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        notes = {"server": self._server, "dataset": self.dataset, "dataset_id": self._dataset_id, "parts": self.parts}
        with atomic_file(self.folder / NOTES) as file:
            file.write(json.dumps(notes, indent=1).encode())

    def require_same(self, dataset_id: str | None) -> None:
        """Refuses another dataset of the same name: what is here would be deleted for what is there.

        Raises:
            BadInputError: the folder has followed a dataset with another id.
        """
        if not self.parts or self._dataset_id == dataset_id:
            return
        state = "has none" if dataset_id is None else "has another one"
        raise BadInputError(
            f"{self.folder} holds {counted(len(self.parts))} of the dataset {self.dataset!r}. {self._server} "
            f"{state} of this name: it was deleted, or this is another server, API key or --data folder. "
            f"Nothing in {self.folder} was changed. Name the server that has it (--url), or begin anew: "
            "in another folder (--out), or in this one once you have deleted it"
        )

    async def follow(self, server: Ingestions, ingestion_id: str) -> int:
        """Makes the folder hold the files of an ingestion's dataset, beside those of others; how many were fetched.

        All are fetched before the first becomes visible. Raises `EmbedqClientError`, as `require_same`, or
        `BadInputError`: the dataset goes on changing. The folder is then as before.
        """
        fetched = self._room()
        try:
            listing = await self._fetched(server, ingestion_id, fetched)
            names = [part["name"] for part in listing["data"]]
            new = [name for name in names if not self._has(name)]
            for name in new:
                (fetched / name).replace(self.folder / name)
        finally:
            rmtree(fetched, ignore_errors=True)
        for name in set(self.parts).difference(names):
            (self.folder / name).unlink(missing_ok=True)
        self.parts, self._dataset_id = names, listing["dataset_id"]
        self.claim()
        return len(new)

    def _room(self) -> Path:
        """A folder of this run: another one may fetch into the same place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob(".fetching-*"):  # of a run that was killed
            if time.time() - old.stat().st_mtime > _ABANDONED_S:
                rmtree(old, ignore_errors=True)
        return Path(mkdtemp(prefix=".fetching-", dir=self.folder))

    async def _fetched(self, server: Ingestions, ingestion_id: str, fetched: Path) -> Mapping[str, Any]:
        """The listing of files that are all here: in the folder, or in `fetched`."""
        listing: Mapping[str, Any] | None = None

        async def fetch(name: str) -> None:
            with atomic_file(fetched / name) as file:
                await server.download(ingestion_id, name, file)

        for _ in range(_LISTINGS):
            before, listing = listing, await server.output(ingestion_id)
            self.require_same(listing["dataset_id"])
            if before and before["dataset_id"] != listing["dataset_id"]:  # made anew, perhaps with the same names
                _empty(fetched)
            names = [_own_name(part["name"]) for part in listing["data"]]
            missing = [name for name in names if not (self._has(name) or (fetched / name).is_file())]
            if not missing:
                return listing  # listed once more behind the last file: it is still the same dataset
            try:
                await run_all(fetch, missing, limit=DOWNLOADS)
            except NotFoundError as error:
                if error.code != "part_changed":
                    raise
        raise BadInputError(
            f"The dataset {self.dataset!r} has changed {_LISTINGS} times while it was fetched; try again when "
            f"no ingestion loads into it. {self.folder} is as before"
        )

    def _has(self, name: str) -> bool:
        return name in self.parts and (self.folder / name).is_file()


def counted(files: int) -> str:
    """So many Parquet files, in words."""
    return "1 Parquet file" if files == 1 else f"{files} Parquet files"


def _empty(folder: Path) -> None:
    rmtree(folder)
    folder.mkdir()


def _own_name(name: str) -> str:
    if "/" in name or name.startswith("."):
        raise BadInputError(f"the server lists a file {name!r}, which leads out of the folder")
    return name


def _read(file: Path) -> Mapping[str, Any]:
    try:
        notes: dict[str, Any] = json.loads(file.read_bytes())
        return {**notes, "parts": [*map(_own_name, notes["parts"])]}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadInputError(f"{file} is damaged; delete it to begin anew in this folder") from None
