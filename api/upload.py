"""One upload: the rules for a file and the fields that come with it, checked as early as they can be."""

import re
import unicodedata
from dataclasses import dataclass

from api.jsonl import LineProbe
from tasks.errors import FileTooLarge, InvalidFile, InvalidValue, MissingParameter
from tasks.ledger.files import Purpose
from tasks.ledger.storage import Writer
from worker_config.settings import Settings

MAX_FILENAME_CHARS = 255
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000
BATCH_EXPIRY_S = MAX_EXPIRY_S
"""Of a batch's input, unless the caller says otherwise. All other files stay until they are deleted."""

_UPLOADED = tuple(purpose for purpose in Purpose if purpose is not Purpose.BATCH_OUTPUT)
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Received:
    """What was uploaded. `expires_in_s`: None for never."""

    filename: str
    purpose: Purpose
    size_bytes: int
    expires_in_s: int | None


class Upload:
    """Takes an upload's parts as a `Form` and writes the file. Raises what its methods name, in any of them."""

    def __init__(self, writer: Writer, settings: Settings) -> None:
        self._writer = writer
        self._settings = settings
        self._fields: dict[str, str] = {}
        self._filename: str | None = None
        self._purpose: Purpose | None = None
        self._lines = LineProbe(settings.max_body_bytes, settings.max_body_lists)

    def field(self, name: str, value: str) -> None:
        """A field. Unknown ones are ignored; of several with one name the last counts.

        Raises:
            InvalidValue: no file can be uploaded for this purpose.
        """
        if name == "purpose":
            self._purpose = _purpose(value)
        elif name in {_ANCHOR, _SECONDS}:
            self._fields[name] = value

    def file(self, name: str, filename: str) -> None:
        """The file begins.

        Raises:
            InvalidValue: it is the second one, or has a name that cannot be.
        """
        if name != "file":
            raise InvalidValue("A file must come in the part named 'file'.", param="file")
        if self._filename is not None:
            raise InvalidValue("Send one file per request.", param="file")
        self._filename = _checked_filename(filename)

    def data(self, data: bytes) -> None:
        """Writes the next bytes of the file.

        Raises:
            FileTooLarge: it has more than a file of its purpose may have.
            DiskFull, StorageUnavailable: the storage takes no more.
        """
        self._require_size(self._writer.size_bytes + len(data))
        self._lines.feed(data)
        self._writer.write(data)

    def finish(self) -> Received:
        """What was uploaded, once all has come.

        Raises:
            MissingParameter: there was no file or no purpose.
            InvalidFile: it is empty and not for `user_data`, or not what its purpose needs.
            InvalidValue: it cannot expire as asked for.
        """
        if self._filename is None:
            raise MissingParameter("Missing required parameter: 'file'.", param="file")
        if self._purpose is None:
            raise MissingParameter("Missing required parameter: 'purpose'.", param="purpose")
        size_bytes = self._writer.size_bytes
        self._require_size(size_bytes)
        if not size_bytes and self._purpose is not Purpose.USER_DATA:  # there it says that a document has no text now
            raise InvalidFile("The file is empty.", param="file")
        if self._purpose is Purpose.BATCH:
            self._require_lines(self._filename)
        return Received(self._filename, self._purpose, size_bytes, _expiry_s(self._fields, self._purpose))

    def _require_size(self, size_bytes: int) -> None:
        batch = self._purpose is Purpose.BATCH
        limit = self._settings.max_batch_file_bytes if batch else self._settings.max_file_bytes
        if size_bytes > limit:
            name = "EMBEDQ_MAX_BATCH_FILE_BYTES" if batch else "EMBEDQ_MAX_FILE_BYTES"
            raise FileTooLarge(f"The file is larger than {limit:,} bytes ({name}).", param="file")

    def _require_lines(self, filename: str) -> None:
        if not filename.lower().endswith(".jsonl"):
            raise InvalidFile("Invalid file format for Batch API. Must be .jsonl", param="file")
        if not self._lines.finish():
            raise InvalidFile(
                "Invalid file format for Batch API: no line of this .jsonl file is a JSON object.", param="file"
            )


def _purpose(value: str) -> Purpose:
    if value not in _UPLOADED:
        allowed = ", ".join(f"'{purpose}'" for purpose in _UPLOADED)
        raise InvalidValue(f"purpose must be one of {allowed}.", param="purpose")
    return Purpose(value)


def _checked_filename(filename: str) -> str:
    if not 0 < len(filename) <= MAX_FILENAME_CHARS:
        raise InvalidValue(f"The file's name must have 1 to {MAX_FILENAME_CHARS} characters.", param="file")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in filename):
        raise InvalidValue("The file's name holds control characters.", param="file")
    return filename


def _expiry_s(fields: dict[str, str], purpose: Purpose) -> int | None:
    if not fields:
        return BATCH_EXPIRY_S if purpose is Purpose.BATCH else None
    if fields.get(_ANCHOR) != "created_at":
        raise InvalidValue("expires_after[anchor] must be 'created_at'.", param=_ANCHOR)
    seconds = fields.get(_SECONDS, "")
    if not _WHOLE_NUMBER.fullmatch(seconds) or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        raise InvalidValue(f"expires_after[seconds] must be {MIN_EXPIRY_S} to {MAX_EXPIRY_S}.", param=_SECONDS)
    return int(seconds)
