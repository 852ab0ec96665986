"""Both workers of an ingestion by hand, in the test's process: real ledger, storage, sources, parsers and sinks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.documents.ingestions.steps import IngestionSteps
from tasks.documents.ingestions.tools import TOOLS
from tasks.encoder.fake import FakeEncoder
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.datasets import present
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_outcomes
from tasks.records.files import put_file
from tasks.records.ingestion_operations import create_ingestion, open_ingestions, read_closed, read_ingestion
from tasks.records.ingestions import Ingestion, NewIngestion, new_ingestion_id
from tasks.storage.model_files import Prompts, write_model_files
from tests.integration.batches.hands import HOUR_MS, MODEL, STEP_S, Hands
from tests.made_files import made_file

DATASET = "books"


class IngestionHands(Hands):
    """See `Hands`; the model's worker has left its tokenizer, in which each word is a token."""

    def __init__(self, ledger: Ledger, folder: Path, **settings: Any) -> None:
        super().__init__(ledger, folder, **settings)
        self.steps = IngestionSteps(TOOLS)
        rules = FakeEncoder("fake").text_rules()
        write_model_files(self.storage, "r1", rules.tokenizer, Prompts(rules.prompts))

    def step(self) -> None:
        """One step of the documents worker, a quarter of a second after the one before."""
        self.wait(STEP_S)
        self.steps(self.step_context)

    def wait(self, seconds: float) -> None:
        """Lets time pass, for steps and for the ledger."""
        self.clock_s += seconds
        self.ledger.clock_offset_ms += round(seconds * 1000)

    def work(self) -> None:
        """Steps and works until nothing moves any more."""
        idle = 0
        while idle < 6:
            self.step()
            idle = 0 if self.work_documents() + self.work_model() else idle + 1

    def ingest(self, source: Mapping[str, Any], *, owner: str = "anonymous", **asked: Any) -> str:
        """An ingestion; its id."""
        spec: dict[str, Any] = {
            "source": dict(source),
            "sink": {"type": "parquet", "dataset": DATASET},
            "mode": "skip_unchanged",
            "model": MODEL,
        }
        made = NewIngestion(new_ingestion_id(), owner, spec | asked, HOUR_MS)
        return self.ledger.run(create_ingestion(made))

    def documents(self, documents: Sequence[Mapping[str, Any]], **asked: Any) -> str:
        """An ingestion of documents that came with the request; its id."""
        name = f"ingestions/{new_ingestion_id()}/inline.json"
        self.storage.write(name, orjson.dumps(documents))
        return self.ingest({"documents": {"count": len(documents)}}, inline=name, **asked)

    def texts(self, texts: Mapping[str, str], **asked: Any) -> str:
        """The same, by id and text."""
        return self.documents([{"id": name, "text": text} for name, text in texts.items()], **asked)

    def file(self, name: str, data: bytes) -> str:
        """An uploaded file's id."""
        record = made_file(len(data), filename=name)
        self.storage.write(record.stored, data)
        self.ledger.run(put_file(record))
        return record.id

    def ingestion(self, ingestion_id: str) -> Ingestion:
        """It as it is now."""
        found = self.ledger.run(read_ingestion(ingestion_id))
        assert found is not None
        return found

    def outcomes(self, ingestion_id: str) -> dict[str, DocumentOutcome]:
        """What became of each document that has ended."""
        pages = self.ledger.run(read_closed(ingestion_id, 0, 1000))
        found = [outcome for page in pages for outcome in read_outcomes(self.storage, page.stored)]
        assert len({outcome.id for outcome in found}) == len(found)
        return {outcome.id: outcome for outcome in found}

    def failed(self, ingestion_id: str) -> list[DocumentOutcome]:
        """Documents that have failed, in the order of pages; ids may come twice."""
        pages = self.ledger.run(read_closed(ingestion_id, 0, 1000))
        found = [outcome for page in pages for outcome in read_outcomes(self.storage, page.stored)]
        return [outcome for outcome in found if outcome.status is DocumentStatus.FAILED]

    def rows(self, owner: str = "anonymous", dataset: str = DATASET) -> list[dict[str, Any]]:
        """What the dataset holds, by document and chunk."""
        parts = present(self.storage, owner, dataset).catalog.listed
        rows = [
            row for part in parts for row in pq.read_table(pa.BufferReader(self.storage.read(part.stored))).to_pylist()
        ]
        return sorted(rows, key=lambda row: (row["doc_id"], row["chunk_index"]))

    def loaded(self) -> dict[str, str]:
        """Texts of the documents in the dataset, put together from their chunks."""
        found: dict[str, str] = {}
        for row in self.rows():
            found[row["doc_id"]] = f"{found.get(row['doc_id'], '')} {row['text']}".strip()
        return found

    def open_tasks(self) -> list[str]:
        """Ids of ledger tasks that are still there."""
        return sorted(key.decode() for key in self.ledger.client.scan_iter("eq:task:*"))

    @property
    def queues(self) -> tuple[str, str]:
        """Of the two workers."""
        return DOCUMENTS, MODEL


def nothing_is_left(hands: IngestionHands, ingestion_id: str) -> None:
    """Fails when an ended ingestion has left a task, an object of its work, or work for a step."""
    hands.step()
    assert hands.ingestion(ingestion_id).pages == {}
    hands.sweep()
    assert list(hands.storage.stored(f"ingestions/{ingestion_id}/work")) == []
    assert hands.ledger.run(open_ingestions(10)) == []
    assert hands.open_tasks() == []
