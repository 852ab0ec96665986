"""Bulk ingestion over HTTP: the client of the server's ingestions, and what the server says of them."""

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar
from urllib.parse import quote

import httpx

from embedq import environment
from embedq.errors import NotFoundError
from embedq.responses import reading
from embedq.transport import Call, RetryListener, Transport

T = TypeVar("T")

PURPOSE = "user_data"
UPLOAD_LIFETIME_S = 7 * 86_400
"""The server deletes uploads after so long, because the command that would delete them may be killed."""
_JOBS_PER_PAGE = 100
_PART_CHANGED = "part_changed"
_ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Ingestion:
    """State of an ingestion at one moment.

    Attributes:
        status: `queued`, `in_progress`, `finalizing`, `completed`, `failed`, `cancelling` or `cancelled`.
        total: documents listed so far; all of them once `listing_complete`.
        done: how many of those have ended in any way.
        unchanged: how many of those were in the dataset already.
        cancelled: how many of those were left when it was cancelled.
        warned: how many of those loaded or unchanged have warnings: not all of them could be read.
        chunks: made so far; `embedded` of them have their vectors.
        chunks_per_s: recently embedded per second; 0 while that is unknown.
        eta_s: seconds to the end as the server estimates it; None while it cannot.
        error: why it failed as a whole: (code, message).
        raw: the whole JSON object of the server.
    """

    id: str
    status: str
    total: int
    done: int
    failed: int
    unchanged: int
    cancelled: int
    chunks: int
    embedded: int
    tokens: int
    listing_complete: bool
    eta_s: float | None
    error: tuple[str, str] | None
    chunks_per_s: float = 0.0
    warned: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in _ENDED

    @property
    def resumable(self) -> bool:
        """Whether it has failed and `retry` continues it."""
        return bool(self.raw.get("resumable"))

    @property
    def succeeded(self) -> bool:
        """Whether every document was loaded."""
        return self.status == "completed" and not self.failed

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        counts = raw["file_counts"]
        error = raw.get("error")
        return cls(
            id=raw["id"],
            status=raw["status"],
            total=counts["total"],
            done=counts["completed"] + counts["failed"] + counts["cancelled"],
            failed=counts["failed"],
            unchanged=counts["unchanged"],
            cancelled=counts["cancelled"],
            chunks=raw["chunks"]["total"],
            embedded=raw["chunks"]["embedded"],
            tokens=raw["chunks"]["tokens"],
            listing_complete=raw["listing_complete"],
            eta_s=raw.get("eta_s"),
            error=(error["code"], error["message"]) if error else None,
            chunks_per_s=(raw.get("rate") or {}).get("chunks_per_s", 0.0),
            warned=counts.get("warned", 0),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class FailedDocument:
    """A document that failed, and why.

    Attributes:
        code: stable.
        stage: where it failed, as the server says; "" for one that failed on this side.
        file_id: of the upload that it came from; "" if it came from elsewhere.
    """

    id: str
    code: str
    message: str
    stage: str = ""
    file_id: str = ""

    @property
    def retryable(self) -> bool:
        """Whether the same bytes may succeed another time."""
        return self.stage in {"embedding", "loading"} or self.code in {"worker_lost", "not_stored", "internal_error"}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        uri, error = str(raw["source_uri"]), raw["last_error"]
        file_id = uri.removeprefix("file:").partition("/")[0] if uri.startswith("file:file-") else ""
        return cls(raw["id"], error["code"], error["message"], raw["stage"] or "", file_id)


@dataclass(frozen=True, slots=True)
class DocumentWarning:
    """What could not be read of a document, of which the rest was read.

    Attributes:
        code: stable.
        pages: where, counted from 1, the first 100 of them; empty: the document as a whole.
    """

    code: str
    message: str
    pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WarnedDocument:
    """A document of which not all could be read."""

    id: str
    warnings: tuple[DocumentWarning, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        warnings = (DocumentWarning(each["code"], each["message"], tuple(each["pages"])) for each in raw["warnings"])
        return cls(raw["id"], tuple(warnings))


@dataclass(frozen=True, slots=True)
class Listing:
    """One version of a dataset.

    Attributes:
        dataset_id: differs from that of another dataset of the same name; None: there is no dataset.
        parts: names of Parquet files. Within a dataset the same name stands for the same rows.
    """

    dataset_id: str | None
    parts: Sequence[str]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From a list of output.

        Raises:
            KeyError, TypeError, ValueError: it is something else, or a name that leads out of a folder.
        """
        parts = [str(part["name"]) for part in raw["data"]]
        if any("/" in name or name.startswith(".") for name in parts):
            raise ValueError("a part has a name that leads out of its folder")
        return cls(raw["dataset_id"], parts)


class PartChangedError(Exception):
    """The dataset has another part in the place of one that was listed. List the output anew."""


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
        """Sends a file; its id. The server deletes it after `UPLOAD_LIFETIME_S`."""
        form = {
            "purpose": PURPOSE,
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(UPLOAD_LIFETIME_S),
        }
        response = await self._call(Call("POST", "/v1/files", form=form, file=(name, path)))
        with reading(response, "a file"):
            return str(response.json()["id"])

    async def delete_upload(self, file_id: str) -> None:
        """Deletes an uploaded file. A file that is gone already is no error."""
        with suppress(NotFoundError):
            await self._call(Call("DELETE", f"/v1/files/{quote(file_id, safe='')}"))

    async def start(self, body: Mapping[str, Any]) -> Ingestion:
        """Starts an ingestion. A repetition after a lost answer does not start another one."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return _read_ingestion(await self._call(Call("POST", "/v1/ingestions", body=body, headers=headers)))

    async def known(self, body: Mapping[str, Any]) -> set[str]:
        """Ids of the documents that the ingestion of this body names by `sha256` and would find unchanged."""
        response = await self._call(Call("POST", "/v1/ingestions/files/known", body=body))
        with reading(response, "a list of ids"):
            return set(response.json()["data"])

    async def status(self, ingestion_id: str) -> Ingestion:
        """The ingestion as it is now."""
        return _read_ingestion(await self._call(Call("GET", _path(ingestion_id))))

    async def cancel(self, ingestion_id: str) -> Ingestion:
        """Asks for its end; what is loaded stays."""
        return _read_ingestion(await self._call(Call("POST", _path(ingestion_id, "/cancel"))))

    async def delete(self, ingestion_id: str) -> None:
        """Deletes its record; it must have ended. A dataset with a name stays."""
        await self._call(Call("DELETE", _path(ingestion_id)))

    async def retry(self, ingestion_id: str) -> Ingestion:
        """Tries its failed documents again."""
        return _read_ingestion(await self._call(Call("POST", _path(ingestion_id, "/retry"))))

    def failed(self, ingestion_id: str) -> AsyncGenerator[FailedDocument, None]:
        """Its failed documents, in the order of the source."""
        path = _path(ingestion_id, "/documents")
        return self._listed(path, "a list of documents", FailedDocument.from_json, filter="failed", limit="100")

    def warned(self, ingestion_id: str) -> AsyncGenerator[WarnedDocument, None]:
        """Those of its documents that have warnings, in the order of the source."""
        path = _path(ingestion_id, "/documents")
        return self._listed(path, "a list of documents", WarnedDocument.from_json, filter="warned", limit="100")

    async def output(self, ingestion_id: str) -> Listing:
        """Its dataset as it is now."""
        response = await self._call(Call("GET", _path(ingestion_id, "/output")))
        with reading(response, "a list of parts"):
            return Listing.from_json(response.json())

    async def dataset_id(self, name: str) -> str | None:
        """The id of a dataset, which differs from that of another one of its name; None when the server has none."""
        try:
            response = await self._call(Call("GET", _dataset_path(name)))
        except NotFoundError:
            return None
        with reading(response, "a dataset"):
            return str(response.json()["id"])

    def datasets(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """The caller's datasets, as the server describes them."""
        return self._listed("/v1/datasets", "a list of datasets", dict, limit="100")

    async def jobs(self, limit: int, **filters: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """The caller's newest tasks, batches and ingestions, `limit` at most, as the server describes them.

        `filters`: `kind`, `status`.
        """
        page = str(min(limit, _JOBS_PER_PAGE))
        async with aclosing(self._listed("/v1/jobs", "a list of jobs", dict, limit=page, **filters)) as listed:
            left = limit
            async for job in listed:
                yield job
                left -= 1
                if not left:
                    return

    async def delete_dataset(self, name: str) -> None:
        """Deletes a dataset with all its vectors; raises `NotFoundError` when there is none."""
        await self._call(Call("DELETE", _dataset_path(name)))

    async def search_dataset(
        self,
        name: str,
        query: str | Sequence[float],
        limit: int = 10,
        *,
        mode: str | None = None,
        model: str | None = None,
        among: Mapping[str, str | float | bool] | None = None,
    ) -> list[dict[str, Any]]:
        """The chunks of a dataset that fit a text or a vector best, best first, as the server describes them.

        Args:
            name: of the dataset; or CONNECTION:TABLE, a table of PostgreSQL that ingestions load into.
            query: a text, which the model of the dataset encodes; or the numbers of a vector.
            limit: 1 to 100.
            mode: `vector` (the server's default), `text`: by the words of the text, or `hybrid`: by both.
            model: another name of that model.
            among: fields of the metadata and their values; `document_id` stands for the document.

        Raises:
            NotFoundError: there is no such dataset.
            RefusedError: the query cannot be compared with it.
        """
        asked = {"query": query} if isinstance(query, str) else {"vector": list(query)}
        optional = {"mode": mode, "model": model, "filter": dict(among) if among else None}
        body = {**asked, "limit": limit, **{key: value for key, value in optional.items() if value is not None}}
        response = await self._call(Call("POST", f"{_dataset_path(name)}/search", body=body))
        with reading(response, "a list of chunks"):
            return list(response.json()["data"])

    async def download(self, ingestion_id: str, name: str, into: BinaryIO) -> None:
        """Writes a part into a file, from the beginning again after a broken connection.

        Raises:
            PartChangedError: the dataset has another part in its place.
        """
        path = _path(ingestion_id, f"/output/{quote(name, safe='')}")
        try:
            await self._call(Call("GET", path, into=into))
        except NotFoundError as error:
            raise PartChangedError if error.code == _PART_CHANGED else error from None

    async def _call(self, call: Call) -> httpx.Response:
        return await self._transport.call(call, timeout_s=self._timeout_s)

    async def _listed(
        self, path: str, what: str, read: Callable[[Mapping[str, Any]], T], **params: str
    ) -> AsyncGenerator[T, None]:
        """The items of a list, page by page."""
        more = True
        while more:  # an empty page may have others behind it
            response = await self._call(Call("GET", path, params=params))
            with reading(response, what):
                page = response.json()
                items = [read(item) for item in page["data"]]
                more = bool(page["has_more"])
                params["after"] = str(page["last_id"])
            for item in items:
                yield item


def _read_ingestion(response: httpx.Response) -> Ingestion:
    with reading(response, "an ingestion"):
        return Ingestion.from_json(response.json())


def _dataset_path(name: str) -> str:
    return f"/v1/datasets/{quote(name, safe='')}"


def _path(ingestion_id: str, below: str = "") -> str:
    # Quoted, so that whatever is passed as an id cannot reach another route.
    return f"/v1/ingestions/{quote(ingestion_id, safe='')}{below}"
