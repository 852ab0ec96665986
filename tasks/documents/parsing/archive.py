"""Parts of an Office file, unpacked with a bound: a few kilobytes of ZIP can hold petabytes."""

import io
import zipfile
import zlib

from tasks.documents.parsing.refusals import corrupt, protected, too_large

MAX_ENTRIES = 10_000
MAX_PART_BYTES = 100 * 2**20
MAX_RATIO = 200
_RATIO_FROM_BYTES = 2**20  # small parts may compress as well as they like
_ENCRYPTED = 0x1


class Archive:
    """Reads parts by name. What the file says of itself is checked before anything is unpacked, and again while it is.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`.
    """

    def __init__(self, data: bytes, format_name: str) -> None:
        self._format = format_name
        try:
            self._file = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError):
            raise corrupt(format_name) from None
        entries = self._file.infolist()
        if len(entries) > MAX_ENTRIES:
            raise too_large(f"holds {len(entries):,} parts, more than {MAX_ENTRIES:,}")
        self._entries = {entry.filename.lstrip("/"): entry for entry in entries}

    def part(self, name: str) -> bytes | None:
        """Its bytes; None: there is none of this name.

        Raises:
            DocumentFailed: as above.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.flag_bits & _ENCRYPTED:
            raise protected(self._format)
        ratio = entry.file_size / max(1, entry.compress_size)
        if entry.file_size > MAX_PART_BYTES or (entry.file_size > _RATIO_FROM_BYTES and ratio > MAX_RATIO):
            raise too_large(f"would unpack to {entry.file_size:,} bytes from {entry.compress_size:,}, as bombs do")
        try:
            with self._file.open(entry) as part:
                data = part.read(MAX_PART_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError):
            raise corrupt(self._format) from None
        if len(data) > MAX_PART_BYTES:
            raise too_large(f"unpacks to more than {MAX_PART_BYTES:,} bytes")
        return data
