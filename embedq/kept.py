"""Uploads that stay on the server for the next run: which of them has the bytes of a file."""

import hashlib
import json
from collections.abc import Collection, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from embedq.wholefile import whole_file


class KeptUploads:
    """Notes in a file of this machine, of what one server holds.

    A file is known by a hash of its bytes and by its name, which says to the server what it is. Wherever it lies and
    whatever its time is, the same bytes are sent once.

    Args:
        notes: the file; none is made before `write`, and one that cannot be read is as good as none.
        held: ids of the uploads that are on the server for long enough; others are forgotten.
    """

    def __init__(self, notes: Path, held: Collection[str]) -> None:
        self._notes = notes
        self._ids = {key: file_id for key, file_id in _read(notes).items() if file_id in held}

    def find(self, path: Path) -> tuple[str, str | None]:
        """What a file is known by, and the id of the upload with its bytes, if there is one. Reads the whole file.

        Raises:
            OSError: it cannot be read.
        """
        with path.open("rb") as file:
            key = f"{hashlib.file_digest(file, 'sha256').hexdigest()} {path.name.encode(errors='replace').decode()}"
        return key, self._ids.get(key)

    def note(self, key: str, file_id: str) -> None:
        """An upload of what is known by `key`."""
        self._ids[key] = file_id

    def write(self) -> None:
        """Keeps the notes for the next run."""
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self._notes) as file:
            file.write(json.dumps(self._ids, indent=0).encode())


def notes_of(cache: Path, server: str) -> Path:
    """Where the notes about a server are."""
    return cache / f"uploads-{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"


def _read(notes: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(notes.read_bytes())
    except (OSError, JSONDecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
