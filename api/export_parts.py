"""Parts of a dataset as Parquet: made in a temporary file when they are fetched."""

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from tasks.datasets.contents import ExportedPart
from tasks.errors import NotReady
from tasks.pieces import pieces
from tasks.storage.folder import TEMPORARY, translated

_CHUNK_BYTES = 2**18
_GROUP_ROWS = 4096
_ETAG_CHARS = 32


@dataclass(frozen=True, slots=True)
class MadePart:
    """A part in a file without a name, at its beginning."""

    name: str
    file: IO[bytes]
    size_bytes: int
    etag: str

    def response(self) -> StreamingResponse:
        """All of it; closes the file."""
        headers = {
            "content-length": str(self.size_bytes),
            "etag": f'"{self.etag}"',
            "content-disposition": f'attachment; filename="{self.name}"',
        }
        return StreamingResponse(
            iterate_in_threadpool(self._bytes()), media_type="application/octet-stream", headers=headers
        )

    def _bytes(self) -> Iterator[bytes]:
        with self.file:
            while data := self.file.read(_CHUNK_BYTES):
                yield data


def make_part(name: str, part: ExportedPart) -> MadePart:
    """Writes the rows of a part.

    Raises:
        NotReady: pyarrow is not installed here.
        DiskFull: the temporary folder is full.
    """
    try:
        from tasks.datasets.export import write_part  # noqa: PLC0415 - pyarrow is an extra, and takes 30 MB
    except ImportError:
        raise NotReady(
            'This server lacks pyarrow, which writes Parquet: pip install "embedq[parquet]".',
            param="pyarrow",
            retry_after_s=120,
        ) from None
    with translated(TEMPORARY):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever sends it closes it
    try:
        with translated(TEMPORARY):
            write_part(file, pieces(part.rows, _GROUP_ROWS), part.dimension)
        size_bytes = file.tell()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    etag = hashlib.sha256(f"{part.dataset_id} {name}".encode()).hexdigest()[:_ETAG_CHARS]
    return MadePart(name, file, size_bytes, etag)
