"""Ingestions: documents in, vectors in a store out."""

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import orjson

from api.async_datasets import AsyncDatasets, Stopping
from api.async_storage import AsyncStorage
from api.export_parts import MadePart, make_part
from api.idempotency import key_digests
from api.offload import offload
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.ingestions import DocumentGroups, Ingestion, IngestionDocument, KnownDocuments, Output
from api.schemas.new_ingestion import NewIngestion, PostgresSink
from api.served_models import ServedModels
from api.services.ingestion_checks import check_again, check_new
from api.services.ingestion_documents import group_documents, read_documents
from api.services.owned import change_job, own, room_of
from api.waiting.why_waiting import why_waiting
from tasks.datasets.contents import Contents, ExportPart
from tasks.datasets.loads import Receipt
from tasks.datasets.places import Datasets, open_store
from tasks.errors import Conflict, Invalid, NotFound, Refused, RequestError, StorageFull
from tasks.ingestion.skip_unchanged import fingerprint
from tasks.item import Options
from tasks.ledger.client import AsyncLedger
from tasks.records import ingestions
from tasks.records.api_keys import Key
from tasks.records.files import read_files
from tasks.records.ingestions import IngestionRecord, IngestionStatus, is_ingestion_id, new_ingestion_id, read_ingestion
from tasks.records.jobs import create_job, find_job, read_tasks_of
from tasks.records.moves import Move, cancel_job, delete_job, retry_job
from tasks.records.store import Room
from tasks.wire.embeddings_body import check_options
from tasks.wire.validation import parse_object, validated
from worker_config.logs import subject_is_task
from worker_config.settings import Settings

_FILES_AT_ONCE = 500
_URLS_SHOWN = 10
_UNKNOWN = "No ingestion found with this id. Use the id from the answer to POST /v1/ingestions."


class IngestionService:
    """The ingestions of this service. What takes an id raises `NotFound` where the caller has no such ingestion."""

    def __init__(
        self,
        ledger: AsyncLedger,
        models: ServedModels,
        storage: AsyncStorage,
        datasets: AsyncDatasets,
        settings: Settings,
    ) -> None:
        self._storage = storage
        self._datasets = datasets
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
            StorageUnavailable, RedisUnavailable, SinkUnavailable: no answer.
        """
        digests = await offload(len(body), key_digests, idempotency_key, body)
        # First of all: a repetition finds what it has made, whatever has become of its files and limits since.
        made = await self._ledger.run(find_job(IngestionRecord, key.owner, digests)) if digests else None
        if made is None:
            name, digest = digests or ("", "")
            wanted, listed = await offload(len(body), self._wanted, key, body, name)
            if "files" in wanted.request["source"]:
                await self._require_files(key, {index: file["id"] for index, file in enumerate(listed) if "id" in file})
            made = await self._store(key, wanted, listed, digest)
        return await self.read(key, made)

    async def known(self, key: Key, body: bytes) -> KnownDocuments:
        """What this ingestion would find unchanged of the files that it names by `sha256`; raises as `create`.

        Nothing where no worker has loaded the model yet, there is no dataset, or its database does not answer soon.
        """
        wanted, listed = await offload(len(body), self._wanted, key, body, "")
        files = listed if "files" in wanted.request["source"] else ()
        digests = {file["document_id"]: file["sha256"] for file in files if "sha256" in file}
        model = self._models.served(wanted.model).model
        if model is None or not digests or wanted.request["mode"] == "upsert":
            return KnownDocuments(data=[])

        def read(_: Datasets) -> Mapping[str, Receipt]:
            sink, shares = wanted.request["sink"], wanted.shares_table
            made = open_store(sink, self._settings, owner=key.owner, ingestion=wanted.id, shares_table=shares)
            with closing(made) as store:
                return store.known(list(digests))

        receipts, mark = await self._datasets.ask(key.owner, read), fingerprint(wanted.request, model)
        found = {name: (receipt.content_hash, receipt.fingerprint) for name, receipt in (receipts or {}).items()}
        return KnownDocuments(data=[name for name, digest in digests.items() if found.get(name) == (digest, mark)])

    async def read(self, key: Key, ingestion_id: str) -> Ingestion:
        """The ingestion as it is now."""
        [ingestion] = await self._ledger.run(read_tasks_of([await self._own(key, ingestion_id)]))
        shown = Ingestion.model_validate(ingestion)
        [shown.waiting] = await why_waiting(self._ledger, self._models, [ingestion])
        return shown

    async def documents(
        self, key: Key, ingestion_id: str, status: str | None, page: PagePlace
    ) -> Page[IngestionDocument]:
        """Some documents, in the order of the source. Returns and raises as `read_documents`."""
        return await read_documents(self._ledger, self._storage, await self._own(key, ingestion_id), status, page)

    async def groups(self, key: Key, ingestion_id: str, status: str) -> DocumentGroups:
        """Failed documents, or those with warnings, by code. Returns and raises as `group_documents`."""
        return await group_documents(self._ledger, self._storage, await self._own(key, ingestion_id), status)

    async def output(self, key: Key, ingestion_id: str) -> Output:
        """The parts of its dataset as it is now: none before anything was loaded, or once it is deleted.

        Raises:
            Invalid: its sink is no dataset.
            SinkUnavailable: no answer.
        """
        owner, name = await self._dataset(key, ingestion_id)

        def listed(contents: Contents, _: Stopping) -> Output:
            return Output.of(ingestion_id, name, contents.head(), contents.export_parts())

        try:
            return await self._datasets.read(owner, lambda datasets: datasets.contents(owner, name), listed)
        except NotFound:
            return Output.of(ingestion_id, name, None, ())

    async def part(self, key: Key, ingestion_id: str, part_name: str) -> MadePart:
        """A part of its output, to be closed; raises like `output`, and where there is none any more.

        Raises:
            NotFound: it is no part of this dataset.
            Refused: the dataset has changed, and has another part in its place.
        """
        owner, name = await self._dataset(key, ingestion_id)
        part = ExportPart.from_name(part_name)
        gone = NotFound("file_not_found", "There is no such part. GET …/output lists those there are.", param="name")
        if part is None:
            raise gone

        def made(contents: Contents, _: Stopping) -> MadePart | None:
            found = contents.export_rows(part)
            return None if found is None else make_part(part_name, found)

        try:
            found = await self._datasets.read(owner, lambda datasets: datasets.contents(owner, name), made)
        except NotFound:
            raise gone from None
        if found is None:
            raise Refused(
                "part_changed", "The dataset has changed, and this part is gone. GET …/output lists its parts anew."
            )
        return found

    async def cancel(self, key: Key, ingestion_id: str) -> Ingestion:
        """Ends an ingestion; what is loaded stays. Raises `Conflict` if there is nothing to cancel."""

        def cancelled(job: ingestions.Ingestion) -> Move | None:
            if job.status.terminal and job.status is not IngestionStatus.CANCELLED:
                raise Conflict("ingestion_ended", f"Cannot cancel an ingestion with status '{job.status}'.")
            return cancel_job(job)

        await change_job(self._ledger, lambda: self._own(key, ingestion_id), cancelled)
        return await self.read(key, ingestion_id)

    async def retry(self, key: Key, ingestion_id: str) -> Ingestion:
        """Tries the failed documents of an ended ingestion again under its id. A resumable one goes on where it was.

        Raises:
            Conflict: nothing of it can be tried again.
            TooMany, Forbidden: there is no room for another open ingestion, or for what it stores.
            Invalid, SourceFailed: the key may not do any more what it asks for.
        """
        before = await self._own(key, ingestion_id)
        if before.status is IngestionStatus.COMPLETED and not before.counts.failed:
            raise Conflict("ingestion_ended", "None of its documents has failed, so there is nothing to try again.")
        check_again(before, self._settings, key.limits)
        room = await self._room(key)

        def again(job: ingestions.Ingestion) -> Move | None:
            move = retry_job(job)
            if move is not None:
                move.set(most_stored=_most_stored(room))
            return move

        job = await change_job(self._ledger, lambda: self._own(key, ingestion_id), again, room)
        # Where nothing was moved, an earlier call whose answer was lost did it, or somebody else in this moment.
        if retry_job(job) is None and not (before.status.terminal and not job.status.terminal):
            reason = "it has failed as a whole" if job.error else f"its status is '{job.status}'"
            advice = " Send its request again: what is loaded is not done again." if job.status.terminal else ""
            raise Conflict(
                "ingestion_ended", f"Only an ingestion that has completed can be tried again; {reason}.{advice}"
            )
        return await self.read(key, ingestion_id)

    async def delete(self, key: Key, ingestion_id: str) -> None:
        """Deletes the record of an ended ingestion. What it has loaded under a name stays. Raises `Conflict`."""

        def deleted(job: ingestions.Ingestion) -> Move | None:
            if not job.status.terminal:
                raise Conflict(
                    "ingestion_not_ended",
                    f"Cannot delete an ingestion with status '{job.status}'. "
                    "Cancel it, and delete it when it has ended.",
                )
            return delete_job(job)

        await change_job(self._ledger, lambda: self._own(key, ingestion_id), deleted)

    # Making one.

    def _wanted(self, key: Key, body: bytes, alias: str) -> tuple[IngestionRecord, list[Any]]:
        """The record, and what its source lists."""
        asked = validated(NewIngestion, parse_object(body))
        served = self._models.served(asked.model)
        check_new(asked, self._settings, key.limits, served.model.max_tokens if served.model else None)
        check_options(Options(asked.prompt_name, asked.dimensions), served.name, served.model)
        ingestion_id, kind, listed, sink = new_ingestion_id(), asked.source.kind, asked.source.listed(), asked.sink
        request = asked.model_dump(exclude={"source"}, exclude_none=True) | {
            # Every step and every poll reads it: ten thousand ids of files have no place in it.
            "source": asked.source.options() | {kind: len(listed)},
            "model": served.name,
            "label": key.name,
            "listed": f"{key.owner}/{ingestion_id}/listed.jsonl",
        }
        if kind == "urls":
            request["urls_shown"] = listed[:_URLS_SHOWN]
        record = IngestionRecord(
            id=ingestion_id,
            owner=key.owner,
            request=request,
            model=served.name,
            ttl_ms=round(self._settings.batch_ttl_s * 1000),
            alias=alias,
            roots=None if key.limits.roots is None else tuple(key.limits.roots),
            shares_table=isinstance(sink, PostgresSink) and key.limits.shares_table(sink.name, sink.table),
        )
        return record, listed

    async def _require_files(self, key: Key, ids: Mapping[int, str]) -> None:
        places = list(ids)
        for first in range(0, len(places), _FILES_AT_ONCE):
            some = places[first : first + _FILES_AT_ONCE]
            files = await self._ledger.run(read_files([ids[index] for index in some]))
            for index, file in zip(some, files, strict=True):
                param = f"source.files[{index}]"
                own(key, file, NotFound("file_not_found", f"{param} is no file of yours.", param=param))

    async def _store(self, key: Key, wanted: IngestionRecord, listed: list[Any], digest: str) -> str:
        """The id of the ingestion, which another request with the same key may have made in this moment."""
        room = await self._room(key)
        # The list before the record: whoever works on that finds it there.
        stored = wanted.request["listed"]
        lines = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in listed)
        await self._storage.run(lambda storage: storage.write(stored, lines))
        try:
            record = wanted.model_copy(update={"most_stored": _most_stored(room)})
            made = await self._ledger.run(create_job(record, room, digest))
        except (RequestError, StorageFull):
            # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
            await self._storage.discard(stored)
            raise
        if made != wanted.id:
            await self._storage.discard(stored)
        return made

    async def _room(self, key: Key) -> Room:
        """Of one more that is open. What it keeps counts later, up to `_most_stored`."""
        limits = {"ingestions": self._settings.max_open_jobs, "jobs": key.limits.open_jobs}
        held = await self._datasets.held_bytes(key.owner)
        return dataclasses.replace(room_of(key, self._settings, **limits), beside={"stored": held})

    # Reading.

    async def _own(self, key: Key, ingestion_id: str) -> ingestions.Ingestion:
        found = None
        if is_ingestion_id(ingestion_id):
            subject_is_task(ingestion_id)
            found = await self._ledger.run(read_ingestion(ingestion_id))
        there = None if found is None or found.deleted else found
        return own(key, there, NotFound("ingestion_not_found", _UNKNOWN, param="id"))

    async def _dataset(self, key: Key, ingestion_id: str) -> tuple[str, str]:
        """Owner and name."""
        ingestion = await self._own(key, ingestion_id)
        sink = ingestion.spec["sink"]
        if sink["type"] != "dataset":
            raise Invalid(
                "invalid_value", f"The vectors of this ingestion are in the table {sink['table']} of its sink."
            )
        return ingestion.owner, sink.get("dataset") or ingestion.id


def _most_stored(room: Room) -> int:
    return room.limits["stored"] - room.beside["stored"]
