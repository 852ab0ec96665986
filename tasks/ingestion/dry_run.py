"""A dry run: documents are read and cut, and nothing is embedded or loaded."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tasks.ingestion.context import StageContext
from tasks.records.documents import Document, DocumentStatus, write_documents
from tasks.records.jobs import Counts


def count_by_status(lines: Iterable[Document]) -> Counter[DocumentStatus]:
    """How many documents there are in each state."""
    found = Counter[DocumentStatus]()
    for line in lines:
        found[line.status] += line.documents
    return found


def counted(context: StageContext, lines: Sequence[Document], size_bytes: int) -> dict[str, Any]:
    """The lines (`obj`) and `counts` of a page of a dry run that is done, whether it was cut or has failed."""
    done = [line.done(DocumentStatus.COUNTED) if line.is_cut else line for line in lines]
    became, obj = count_by_status(done), context.name("counted")
    counts = Counts(
        documents=became.total(),
        loaded=became[DocumentStatus.COUNTED],
        unchanged=became[DocumentStatus.UNCHANGED],
        failed=became[DocumentStatus.FAILED],
        emptied=sum(line.code == "emptied" for line in done),
        warned=sum(bool(line.warnings) for line in done),
        chunks=sum(line.chunks for line in done),
        chunk_tokens=sum(line.tokens for line in done),
        bytes=size_bytes,
        kept=write_documents(context.storage, obj, done),
    )
    return {"obj": obj, "counts": [*counts]}
