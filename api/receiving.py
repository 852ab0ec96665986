"""The body of an upload on its way into the storage: as fast as the storage takes it, a piece at a time."""

from starlette.requests import ClientDisconnect, Request

from api.failures import CallerGone
from api.multipart import FormReader
from api.quota import Room
from api.storage import AsyncStorage
from api.upload import Received, Upload
from tasks.errors import FileTooLarge, InvalidValue
from worker_config.settings import Settings

_FORM_BYTES = 2**20
"""Room for what a form has besides the file."""


async def receive(request: Request, storage: AsyncStorage, name: str, settings: Settings, taken: Room) -> Received:
    """Stores the file of a multipart/form-data body under `name`. After any error there is nothing under it.

    `taken`: the room that it takes, and is told of what comes.

    Raises:
        UnsupportedMediaType, InvalidValue, InvalidUnicode: the body is not such a form.
        MissingParameter, InvalidFile, FileTooLarge: see `Upload`.
        QuotaExceeded: it is more than there is room for.
        StorageUnavailable, DiskFull: the storage does not take it.
        CallerGone: the client closed the connection first.
    """
    async with storage.writing(name) as writer:
        upload = Upload(writer, settings)
        reader = FormReader(request.headers.get("content-type", ""), upload)
        received = 0
        try:
            async for chunk in request.stream():
                received += len(chunk)
                # Parsing and writing in a thread: a disk that stands still must not stop the event loop.
                await storage.run(reader.feed, chunk)
                if received - writer.size_bytes > _FORM_BYTES:
                    raise InvalidValue(f"The form has more than {_FORM_BYTES:,} bytes besides the file.")
                await taken.received(writer.size_bytes)
        except ClientDisconnect:
            raise CallerGone from None
        reader.finish()
        return await storage.run(upload.finish)


def announced_bytes(request: Request, max_file_bytes: int) -> int | None:
    """What the file has at least, by its Content-Length; None where there is none. Nothing of the body has been read.

    Raises:
        FileTooLarge: more than a file may have.
    """
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal():
        return None
    least = max(int(declared) - _FORM_BYTES, 0)
    if least > max_file_bytes:
        raise FileTooLarge(f"The file is larger than {max_file_bytes:,} bytes (EMBEDQ_MAX_FILE_BYTES).", param="file")
    return least
