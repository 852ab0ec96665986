"""The server's calls for bulk ingestion: upload, start, look, download."""

import math
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx

from embedq import environment
from embedq.errors import NotFoundError, unexpected
from embedq.ingestion import FailedDocument, Ingestion, Listing
from embedq.transport import Call, RetryListener, Transport

PURPOSE = "user_data"
KEPT_S = 7 * 86_400
"""Uploads are deleted by the server after so long, should nobody do it before: whoever sent them may be killed."""
_UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, JSONDecodeError)


class Ingestions:
    """Client of one embedq server's ingestions. Belongs to one event loop; use it in `async with`.

    Every method raises `EmbedqClientError`, as those of `EmbeddingService` do.

    Args:
        url: address of the server; None: `EMBEDQ_URL`, else http://127.0.0.1:8000.
        timeout_s: longest time of one call, repetitions included.
    """

    def __init__(
        self, url: str | None = None, *, timeout_s: float = 600.0, on_retry: RetryListener | None = None
    ) -> None:
        self.url = url or environment.server_url()
        self._timeout_s = timeout_s
        self._transport = Transport(self.url, api_key=environment.api_key(), on_retry=on_retry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def upload(self, path: Path, name: str) -> str:
        """Sends a file; its id. The server deletes it after `KEPT_S`."""
        form = {
            "purpose": PURPOSE,
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(KEPT_S),
        }
        response = await self._call(Call("POST", "/v1/files", form=form, file=(name, path)))
        try:
            return str(response.json()["id"])
        except _UNREADABLE as error:
            raise unexpected(response, "a file") from error

    async def held(self, longer_than_s: float) -> set[str]:
        """Ids of the caller's uploads that the server will hold for so long."""
        until = time.time() + longer_than_s
        params = {"purpose": PURPOSE, "limit": "10000"}
        found: set[str] = set()
        more = True
        while more:
            response = await self._call(Call("GET", "/v1/files", params=params))
            try:
                page = response.json()
                found |= {file["id"] for file in page["data"] if (file["expires_at"] or math.inf) > until}
                more = bool(page["has_more"])
                params["after"] = str(page["last_id"])
            except _UNREADABLE as error:
                raise unexpected(response, "a list of files") from error
        return found

    async def delete_upload(self, file_id: str) -> None:
        """Deletes an uploaded file; one that is gone is fine."""
        with suppress(NotFoundError):
            await self._call(Call("DELETE", f"/v1/files/{quote(file_id, safe='')}"))

    async def start(self, body: Mapping[str, Any]) -> Ingestion:
        """Starts an ingestion; a repetition after a lost answer finds the same one."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return _ingestion(await self._call(Call("POST", "/v1/ingestions", body=body, headers=headers)))

    async def status(self, ingestion_id: str) -> Ingestion:
        """The ingestion as it is now."""
        return _ingestion(await self._call(Call("GET", _path(ingestion_id))))

    async def cancel(self, ingestion_id: str) -> Ingestion:
        """Asks for its end; what is loaded stays."""
        return _ingestion(await self._call(Call("POST", _path(ingestion_id, "/cancel"))))

    async def retry(self, ingestion_id: str) -> Ingestion:
        """Tries its failed documents again."""
        return _ingestion(await self._call(Call("POST", _path(ingestion_id, "/retry"))))

    async def failed(self, ingestion_id: str) -> AsyncGenerator[FailedDocument, None]:
        """Its failed documents, in the order of the source."""
        params = {"filter": "failed", "limit": "100"}
        more = True
        while more:  # a page may be empty, and others behind it not
            response = await self._call(Call("GET", _path(ingestion_id, "/documents"), params=params))
            try:
                page = response.json()
                found = [FailedDocument.from_json(document) for document in page["data"]]
                more = bool(page["has_more"])
                params["after"] = str(page["last_id"])
            except _UNREADABLE as error:
                raise unexpected(response, "a list of documents") from error
            for document in found:
                yield document

    async def output(self, ingestion_id: str) -> Listing:
        """Its dataset as it is now."""
        response = await self._call(Call("GET", _path(ingestion_id, "/output")))
        try:
            return Listing.from_json(response.json())
        except _UNREADABLE as error:
            raise unexpected(response, "a list of parts") from error

    async def dataset_id(self, name: str) -> str | None:
        """What tells a dataset from another one of its name; None when the server has none."""
        try:
            response = await self._call(Call("GET", _dataset_path(name)))
        except NotFoundError:
            return None
        try:
            return str(response.json()["id"])
        except _UNREADABLE as error:
            raise unexpected(response, "a dataset") from error

    async def datasets(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """The caller's datasets, as the server describes them."""
        params = {"limit": "100"}
        more = True
        while more:
            response = await self._call(Call("GET", "/v1/datasets", params=params))
            try:
                page = response.json()
                found, more = list(page["data"]), bool(page["has_more"])
                params["after"] = str(page["last_id"])
            except _UNREADABLE as error:
                raise unexpected(response, "a list of datasets") from error
            for dataset in found:
                yield dataset

    async def delete_dataset(self, name: str) -> None:
        """Deletes a dataset with all its vectors; raises `NotFoundError` when there is none."""
        await self._call(Call("DELETE", _dataset_path(name)))

    async def download(self, ingestion_id: str, name: str, into: BinaryIO) -> None:
        """Writes a part into a file, from the beginning again after a broken connection."""
        path = _path(ingestion_id, f"/output/{quote(name, safe='')}")
        await self._call(Call("GET", path, into=into))

    async def _call(self, call: Call) -> httpx.Response:
        return await self._transport.call(call, timeout_s=self._timeout_s)


def _ingestion(response: httpx.Response) -> Ingestion:
    try:
        return Ingestion.from_json(response.json())
    except _UNREADABLE as error:
        raise unexpected(response, "an ingestion") from error


def _dataset_path(name: str) -> str:
    return f"/v1/datasets/{quote(name, safe='')}"


def _path(ingestion_id: str, below: str = "") -> str:
    # Quoted, so that whatever is passed as an id cannot reach another route.
    return f"/v1/ingestions/{quote(ingestion_id, safe='')}{below}"
