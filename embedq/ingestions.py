"""Ingestions, datasets and lists of jobs over HTTP. Answers are the server's JSON objects."""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, BinaryIO

from embedq.errors import NotFoundError
from embedq.transport import Job, Transport, route

UPLOAD_LIFETIME_S = 7 * 86_400
"""The server deletes uploads after so long, because the command that would delete them may be killed."""
_PAGE = 100


class Ingestions(Transport):
    """Client of one embedq server's ingestions, datasets and jobs; made and closed as a `Transport`.

    Every method raises `EmbedqClientError`, as those of `EmbeddingService` do.
    """

    async def upload(self, path: Path, name: str) -> str:
        """Sends a file; its id. The server deletes it after `UPLOAD_LIFETIME_S`."""
        form = {
            "purpose": "user_data",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": str(UPLOAD_LIFETIME_S),
        }
        with path.open("rb") as file:
            return str((await self.json("POST", "/v1/files", data=form, files={"file": (name, file)}))["id"])

    async def delete_upload(self, file_id: str) -> None:
        """Deletes an uploaded file. A file that is gone already is no error."""
        with suppress(NotFoundError):
            await self.call("DELETE", route("files", file_id))

    async def start(self, body: Mapping[str, Any]) -> Job:
        """Starts an ingestion. A repetition after a lost answer does not start another one."""
        return Job(await self.json("POST", "/v1/ingestions", body, headers={"Idempotency-Key": uuid.uuid4().hex}))

    async def known(self, body: Mapping[str, Any]) -> set[str]:
        """Ids of the documents that the ingestion of this body names by `sha256` and would find unchanged.

        Raises:
            RefusedError: the server would refuse the ingestion.
        """
        return set((await self.json("POST", "/v1/ingestions/files/known", body))["data"])

    async def status(self, ingestion_id: str) -> Job:
        """The ingestion as it is now."""
        return Job(await self.json("GET", route("ingestions", ingestion_id)))

    async def cancel(self, ingestion_id: str) -> Job:
        """Asks for its end; what is loaded stays."""
        return Job(await self.json("POST", route("ingestions", ingestion_id, "cancel")))

    async def retry(self, ingestion_id: str) -> Job:
        """Tries its failed documents again."""
        return Job(await self.json("POST", route("ingestions", ingestion_id, "retry")))

    def documents(self, ingestion_id: str, state: str) -> AsyncGenerator[dict[str, Any], None]:
        """Its documents in a state, such as `failed` or `warned`, in the order of the source."""
        return self.listed(route("ingestions", ingestion_id, "documents"), filter=state, limit=str(_PAGE))

    async def output(self, ingestion_id: str) -> dict[str, Any]:
        """Its dataset as it is now: `dataset_id`, and the Parquet files in `data`."""
        return await self.json("GET", route("ingestions", ingestion_id, "output"))

    async def download(self, ingestion_id: str, name: str, into: BinaryIO) -> None:
        """Writes a Parquet file of the output, from the beginning again after a broken connection.

        Raises:
            NotFoundError: with the code `part_changed`: the dataset has another one in its place.
        """
        await self.call("GET", route("ingestions", ingestion_id, "output", name), into=into)

    async def jobs(self, limit: int, **filters: str) -> AsyncGenerator[Job, None]:
        """The caller's newest tasks, batches and ingestions, `limit` at most. `filters`: `kind`, `status`."""
        async with aclosing(self.listed("/v1/jobs", limit=str(min(limit, _PAGE)), **filters)) as listed:
            async for job in listed:
                yield Job(job)
                limit -= 1
                if not limit:
                    return

    def datasets(self) -> AsyncGenerator[dict[str, Any], None]:
        """The caller's datasets."""
        return self.listed("/v1/datasets", limit=str(_PAGE))

    async def dataset_id(self, name: str) -> str | None:
        """The id of a dataset, which differs from that of another one of its name; None when the server has none."""
        try:
            return str((await self.json("GET", route("datasets", name)))["id"])
        except NotFoundError:
            return None

    async def delete_dataset(self, name: str) -> None:
        """Deletes a dataset with all its vectors; raises `NotFoundError` when there is none."""
        await self.call("DELETE", route("datasets", name))

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
        """The chunks of a dataset that fit a text or a vector best, best first.

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
        return list((await self.json("POST", route("datasets", name, "search"), body))["data"])
