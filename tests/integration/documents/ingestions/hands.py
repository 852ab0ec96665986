"""Both workers of an ingestion by hand, in the test's process: real ledger, storage, sources, parsers and sinks."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tasks.datasets.contents import DatasetGone
from tasks.datasets.places import Datasets, open_datasets
from tasks.encoder.fake import FakeEncoder
from tasks.ledger.client import Ledger
from tasks.records.documents import Document, DocumentStatus, read_documents
from tasks.records.ingestions import Ingestion, IngestionRecord, new_ingestion_id, read_ingestion
from tasks.records.jobs import all_done, create_job, list_jobs, read_tasks_of
from tasks.records.moves import retry_job
from tasks.records.store import ANY_ROOM, OPEN
from tasks.storage.model_files import Prompts, write_model_files
from tests.integration.batches.hands import HOUR_MS, MODEL, Hands

DATASET = "books"


class IngestionHands(Hands):
    """See `Hands`; the model's worker has left its tokenizer, in which each word is a token."""

    def __init__(self, ledger: Ledger, folder: Path, **settings: Any) -> None:
        super().__init__(ledger, folder, **settings)
        rules = FakeEncoder("fake").text_rules()
        write_model_files(self.storage, "r1", rules.tokenizer, Prompts(rules.prompts))

    @property
    def datasets(self) -> Datasets:
        return open_datasets(self.settings)

    def ingest(self, source: Mapping[str, Any], *, owner: str = "anonymous", **asked: Any) -> str:
        made, most_stored = asked.pop("made", None) or new_ingestion_id(), asked.pop("most_stored", None)
        sink = {"type": "dataset", "dataset": DATASET}
        request = {"source": dict(source), "sink": sink, "mode": "skip_unchanged", "model": MODEL} | asked
        record = IngestionRecord(
            id=made, owner=owner, request=request, model=request["model"], ttl_ms=HOUR_MS, most_stored=most_stored
        )
        return self.ledger.run(create_job(record, ANY_ROOM))

    def documents(self, documents: Sequence[Mapping[str, Any]], **asked: Any) -> str:
        made = new_ingestion_id()
        name = f"anonymous/{made}/listed.jsonl"
        self.storage.write(name, b"".join(orjson.dumps(one) + b"\n" for one in documents))
        return self.ingest({"documents": len(documents)}, listed=name, made=made, **asked)

    def texts(self, texts: Mapping[str, str], **asked: Any) -> str:
        return self.documents([{"id": name, "text": text} for name, text in texts.items()], **asked)

    def ingestion(self, ingestion_id: str) -> Ingestion:
        found = self.ledger.run(read_ingestion(ingestion_id))
        assert found is not None
        [seen] = self.ledger.run(read_tasks_of([found]))
        return seen

    def retry(self, ingestion_id: str) -> bool:
        """Tries it again, as its owner does; whether there was anything to try."""
        return self.move(retry_job, self.ingestion(ingestion_id))

    def outcomes(self, ingestion_id: str) -> dict[str, Document]:
        found = self._documents(ingestion_id)
        assert len({outcome.id for outcome in found}) == len(found), found
        return {outcome.id: outcome for outcome in found}

    def failed(self, ingestion_id: str) -> list[Document]:
        return [document for document in self._documents(ingestion_id) if document.status is DocumentStatus.FAILED]

    def _documents(self, ingestion_id: str) -> list[Document]:
        done = self.ledger.run(all_done(ingestion_id, "ingestion"))
        return [line for _, page in sorted(done.items()) for line in read_documents(self.storage, page.obj)]

    def rows(self, dataset: str = DATASET) -> list[dict[str, Any]]:
        with closing(self.datasets.contents("anonymous", dataset)) as contents:
            try:
                parts = [contents.export_rows(part) for part in contents.export_parts()]
            except DatasetGone:
                return []
        rows = [
            row._asdict() | {"embedding": np.frombuffer(row.embedding, "<f4").tolist()}
            for part in parts
            if part
            for row in part.rows
        ]
        return sorted(rows, key=lambda row: (row["doc_id"], row["chunk_index"]))

    def loaded(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for row in self.rows():
            found[row["doc_id"]] = f"{found.get(row['doc_id'], '')} {row['text']}".strip()
        return found

    def open_tasks(self) -> list[str]:
        return sorted(key.decode() for key in self.ledger.client.scan_iter("eq:task:*"))


def nothing_is_left(hands: IngestionHands, ingestion_id: str) -> None:
    """Fails when an ended ingestion has left a task, an object of its work, or work for a step."""
    hands.step()
    hands.sweep()
    ingestion = hands.ingestion(ingestion_id)
    assert not any(page.under_way for page in ingestion.pages.values())
    named: set[str | None] = {page.obj for page in hands.ledger.run(all_done(ingestion_id, "ingestion")).values()}
    if retry_job(ingestion) is not None:
        named |= {page.src for page in ingestion.pages.values()} | {ingestion.spec.get("listed")}
    assert {one.name for one in hands.storage.stored(f"anonymous/{ingestion_id}")} == named - {None}
    assert hands.ledger.run(list_jobs(IngestionRecord, OPEN, limit=10))[0] == []
    assert hands.open_tasks() == []
