"""Ingestions: documents in, vectors in a store out."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import orjson

from api.async_storage import AsyncStorage
from api.idempotency import key_digests
from api.offload import offload
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.ingestions import Ingestion, IngestionDocument, Output
from api.schemas.new_ingestion import NewIngestion, PostgresSink
from api.served_models import ServedModels
from api.services.ingestion_checks import check_again, check_new
from api.services.ingestion_documents import read_documents
from api.services.owned import own, room_of
from api.uploads import Content
from api.waiting.why_waiting import why_waiting
from tasks.errors import Conflict, Invalid, NotFound, RequestError, StorageFull
from tasks.item import Options
from tasks.ledger.client import AsyncLedger
from tasks.records import ingestions
from tasks.records.api_keys import Key
from tasks.records.datasets import Catalog, held_bytes, present
from tasks.records.files import read_files
from tasks.records.ingestion_operations import (
    cancel_ingestion,
    create_ingestion,
    delete_ingestion,
    find_ingestion,
    read_ingestion,
    resume_ingestion,
    retry_ingestion,
)
from tasks.records.ingestions import FOLDER, IngestionStatus, is_ingestion_id, new_ingestion_id
from tasks.wire.embeddings_body import check_options
from tasks.wire.validation import parse_object, validated
from worker_config.settings import Settings
from worker_config.subject import subject_is_task

_FILES_AT_ONCE = 500
_URLS_SHOWN = 10
_UNKNOWN = "No ingestion found with this id. Use the id from the answer to POST /v1/ingestions."


class IngestionService:
    """The ingestions of this service. What takes an id raises `NotFound` where the caller has no such ingestion."""

    def __init__(self, ledger: AsyncLedger, models: ServedModels, storage: AsyncStorage, settings: Settings) -> None:
        self._storage = storage
        self._ledger = ledger
        self._models = models
        self._settings = settings

    async def create(self, key: Key, body: bytes, idempotency_key: str | None) -> Ingestion:
        """Starts an ingestion, or finds the one that the same key and body have started.

        Raises:
            RequestError: the subclass that says what is wrong with the body.
            Refused: the key was used for another body.
            NotFound: the body names one that there is not.
            Forbidden, TooMany, StorageFull: there is no room for it.
            StorageUnavailable, RedisUnavailable: no answer.
        """
        digests = await offload(len(body), key_digests, idempotency_key, body)
        # First of all: a repetition finds what it has made, whatever has become of its files and limits since.
        made = await self._ledger.run(find_ingestion(key.owner, digests)) if digests else None
        if made is None:
            wanted, listed = await offload(len(body), self._wanted, key, body, digests)
            if "files" in wanted.spec["source"]:
                await self._require_files(key, [file["id"] for file in listed])
            made = await self._store(key, wanted, listed)
        return await self.read(key, made)

    async def read(self, key: Key, ingestion_id: str) -> Ingestion:
        """The ingestion as it is now."""
        ingestion = await self._own(key, ingestion_id)
        shown = Ingestion.model_validate(ingestion)
        [shown.waiting] = await why_waiting(self._ledger, self._models, [ingestion])
        return shown

    async def documents(
        self, key: Key, ingestion_id: str, status: str | None, page: PagePlace
    ) -> Page[IngestionDocument]:
        """Some documents, in the order of the source. Returns and raises as `read_documents`."""
        return await read_documents(self._ledger, self._storage, await self._own(key, ingestion_id), status, page)

    async def output(self, key: Key, ingestion_id: str) -> Output:
        """The parts of its dataset as it is now: none before anything was loaded, or once it is deleted.

        Raises:
            Invalid: its sink is no dataset.
            StorageUnavailable: no answer.
        """
        return Output.of(ingestion_id, await self._catalog(key, ingestion_id))

    async def part(self, key: Key, ingestion_id: str, name: str) -> Content:
        """A part of its output; raises like `output`, and `NotFound` if there is no such part."""
        part = (await self._catalog(key, ingestion_id)).find(name)
        gone = NotFound(
            "file_not_found", "There is no such part (any more). GET …/output lists those there are.", param="name"
        )
        if part is None:
            raise gone
        return Content(part.stored, part.size_bytes, part.etag, part.name, gone)

    async def cancel(self, key: Key, ingestion_id: str) -> Ingestion:
        """Ends an ingestion; what is loaded stays. Raises `Conflict` if there is nothing to cancel."""
        await self._own(key, ingestion_id)
        status = (await self._ledger.run(cancel_ingestion(ingestion_id))).status
        if status not in {IngestionStatus.CANCELLING, IngestionStatus.CANCELLED, None}:
            raise Conflict("ingestion_ended", f"Cannot cancel an ingestion with status '{status}'.")
        return await self.read(key, ingestion_id)

    async def retry(self, key: Key, ingestion_id: str) -> Ingestion:
        """Tries the failed documents of an ended ingestion again under its id. A resumable one goes on where it was.

        Raises:
            Conflict: nothing of it can be tried again.
            Invalid, SourceFailed: the key may not do any more what it asks for.
        """
        ingestion = await self._own(key, ingestion_id)
        if ingestion.status.terminal and not ingestion.counts.failed and not ingestion.resumable:
            raise Conflict("ingestion_ended", "None of its documents has failed, so there is nothing to try again.")
        check_again(ingestion, self._settings, key.limits)
        again = resume_ingestion if ingestion.resumable else retry_ingestion
        move = await self._ledger.run(again(ingestion_id))
        status = move.status
        # Not moved by this call: by an earlier one whose answer was lost, or by somebody else in this moment.
        going_on = ingestion.status.terminal and status is not None and not status.terminal
        if not move.moved and status is not None and not going_on:
            reason = "it has failed as a whole" if status is IngestionStatus.FAILED else f"its status is '{status}'"
            advice = " Send its request again: what is loaded is not done again." if status.terminal else ""
            raise Conflict(
                "ingestion_ended", f"Only an ingestion that has completed can be tried again; {reason}.{advice}"
            )
        return await self.read(key, ingestion_id)

    async def delete(self, key: Key, ingestion_id: str) -> None:
        """Deletes the record of an ended ingestion. What it has loaded under a name stays. Raises `Conflict`."""
        await self._own(key, ingestion_id)
        deleted, status = await self._ledger.run(delete_ingestion(ingestion_id))
        if not deleted and status is not None:
            message = f"Cannot delete an ingestion with status '{status}'. Cancel it, and delete it when it has ended."
            raise Conflict("ingestion_not_ended", message)

    # Making one.

    def _wanted(
        self, key: Key, body: bytes, digests: tuple[str, str] | None
    ) -> tuple[ingestions.NewIngestion, list[Any]]:
        """The record, and what its source lists."""
        asked = validated(NewIngestion, parse_object(body))
        served = self._models.served(asked.model)
        check_new(asked, self._settings, key.limits, served.model.max_tokens if served.model else None)
        check_options(Options(asked.prompt_name, asked.dimensions), served.name, served.model)
        ingestion_id, kind, listed, sink = new_ingestion_id(), asked.source.kind, asked.source.listed(), asked.sink
        place = "inline" if kind == "documents" else "listed"
        spec = asked.model_dump(exclude={"source"}, exclude_none=True) | {
            # Every step and every poll reads it: ten thousand ids of files have no place in it.
            "source": asked.source.options() | {kind: len(listed)},
            "model": served.name,
            place: f"{FOLDER}/{ingestion_id}/{place}.json",
        }
        if kind == "urls":
            spec["urls_shown"] = listed[:_URLS_SHOWN]
        record = ingestions.NewIngestion(
            id=ingestion_id,
            owner=key.owner,
            spec=spec,
            ttl_ms=round(self._settings.batch_ttl_s * 1000),
            key=digests,
            roots=key.limits.roots,
            shares_table=isinstance(sink, PostgresSink) and key.limits.shares_table(sink.name, sink.table),
        )
        return record, listed

    async def _require_files(self, key: Key, ids: Sequence[str]) -> None:
        for first in range(0, len(ids), _FILES_AT_ONCE):
            files = await self._ledger.run(read_files(ids[first : first + _FILES_AT_ONCE]))
            for index, file in enumerate(files, start=first):
                param = f"source.files[{index}]"
                own(key, file, NotFound("file_not_found", f"{param} is no file of yours.", param=param))

    async def _store(self, key: Key, wanted: ingestions.NewIngestion, listed: list[Any]) -> str:
        """The id of the ingestion, which another request with the same key may have made in this moment."""
        # The list before the record: whoever works on that finds it there.
        stored = wanted.spec.get("inline") or wanted.spec["listed"]
        await self._storage.run(lambda storage: storage.write(stored, orjson.dumps(listed)))
        try:
            held = await self._storage.run(held_bytes, key.owner)
            limits = {"ingestions": self._settings.max_open_ingestions, "jobs": key.limits.open_jobs}
            room = dataclasses.replace(room_of(key, self._settings, **limits), beside={"stored": held})
            made = await self._ledger.run(create_ingestion(wanted, room))
        except (RequestError, StorageFull):
            # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
            await self._storage.discard(stored)
            raise
        if made != wanted.id:
            await self._storage.discard(stored)
        return made

    # Reading.

    async def _own(self, key: Key, ingestion_id: str) -> ingestions.Ingestion:
        found = None
        if is_ingestion_id(ingestion_id):
            subject_is_task(ingestion_id)
            found = await self._ledger.run(read_ingestion(ingestion_id))
        there = None if found is None or found.deleted else found
        return own(key, there, NotFound("ingestion_not_found", _UNKNOWN, param="id"))

    async def _catalog(self, key: Key, ingestion_id: str) -> Catalog:
        ingestion = await self._own(key, ingestion_id)
        sink = ingestion.spec["sink"]
        if sink["type"] != "parquet":
            raise Invalid(
                "invalid_value", f"The vectors of this ingestion are in the table {sink['table']} of its sink."
            )
        version = await self._storage.run(present, ingestion.owner, sink.get("dataset") or ingestion.id)
        return version.catalog
