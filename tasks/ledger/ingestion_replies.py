"""How ingestions and their pages stand in Redis: texts of pages, and the replies of the scripts. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tasks.ledger import results
from tasks.ledger.ingestion_progress import Counts, Sample, Setback
from tasks.ledger.ingestions import (
    ClosedPage,
    Ingestion,
    IngestionFault,
    IngestionStatus,
    Page,
    PageStage,
)
from tasks.ledger.types import State
from tasks.ledger.waiting_pages import WaitingPage

COUNTS = (
    "documents",
    "loaded",
    "unchanged",
    "failed",
    "cancelled",
    "deleted",
    "chunks",
    "chunks_embedded",
    "chunks_loaded",
    "bytes",
    "bytes_done",
    "tokens",
    "chunk_tokens",
    "pages_parsed",
    "replaced",
)
"""Fields of `Counts`, each a field of the hash."""

JOBS = ("list", "parse", "load", "finish")
"""Kinds of jobs of an ingestion."""


def page_text(page: Page) -> str:
    """A page in flight as JSON. Scripts read `stage`."""
    known = {
        "stage": page.stage,
        "manifest": page.manifest,
        "documents": page.documents,
        "size": page.size_bytes,
        "parsed": page.parsed,
        "source": page.source,
        "index": page.index,
        "chunks": page.chunks,
        "fault": page.fault,
        "load": page.load,
        "losses": page.losses or None,
        "cut": page.cut if any(page.cut) else None,
        "emptied": page.emptied or None,
    }
    return orjson.dumps({name: value for name, value in known.items() if value is not None and value != ""}).decode()


def closed_text(page: ClosedPage) -> str:
    """A page that is done as JSON."""
    return orjson.dumps([page.stored, page.loaded, page.unchanged, page.failed]).decode()


def closed(number: int, text: bytes) -> ClosedPage:
    """Inverse of `closed_text`."""
    return ClosedPage(number, *orjson.loads(text))


def ingestion(ingestion_id: str, row: Sequence[Any]) -> Ingestion | None:
    """From one row of the reading script; None for one that is not there."""
    flat, now_ms, pttl, waiting, begin, list_state, load_state, finish_state, *pages = row
    if not flat:
        return None
    f = {name: value.decode() for name, value in results.pairs(flat).items()}
    status = IngestionStatus(f["status"])
    setbacks = {job: _setback(f[setback_field(job)]) for job in JOBS if setback_field(job) in f}
    in_flight = {page.number: page for page in sorted(map(_page, pages), key=lambda page: page.number)}
    return Ingestion(
        id=ingestion_id,
        owner=f["owner"],
        status=status,
        spec=orjson.loads(f["spec"]),
        created_ms=int(f["created"]),
        now_ms=int(now_ms),
        counts=_counts(f, status, list(in_flight.values())),
        listing_complete=f.get("listing_complete") == "1",
        dimension=int(f["dimension"]) if "dimension" in f else None,
        cursor=orjson.loads(f["cursor"]) if "cursor" in f else None,
        list_number=int(f.get("list_number", 0)),
        next_page=int(f.get("next_page", 0)),
        load_number=int(f.get("load_number", 0)),
        waiting=int(waiting),
        begin_next=tuple(WaitingPage.from_text(entry.decode()) for entry in begin),
        pages=in_flight,
        litter=tuple(int(page) for page in f.get("litter", "").split()),
        loaded_ms=int(f["loaded_ms"]) if "loaded_ms" in f else None,
        samples=tuple(_sample(f[name]) for name in ("s0", "s1") if name in f),
        base=_sample(f["base"]) if "base" in f else None,
        times={s: int(f[f"t_{s}"]) for s in IngestionStatus if f"t_{s}" in f},
        error=IngestionFault(**orjson.loads(f["error"])) if "error" in f else None,
        waiting_for=f.get("waiting_for") or _waiting_for(status, setbacks),
        setbacks=setbacks,
        losses={job: int(f[losses_field(job)]) for job in JOBS if losses_field(job) in f},
        estimate_s=float(f["estimate_s"]) if "estimate_s" in f else None,
        list_state=_state(list_state),
        load_state=_state(load_state),
        finish_state=_state(finish_state),
        expires_ms=int(now_ms) + int(pttl) if int(pttl) > 0 else None,
        resumable=f.get("resumable") == "1",
        ids=f.get("ids", ""),
        order=int(f["order"]),
        **{name: f.get(name) for name in ("revision", "fingerprint", "vectors")},
    )


def sample_text(sample: Sample) -> str:
    """As a field holds it."""
    return f"{sample.at_ms} {sample.documents} {sample.chunks} {sample.bytes}"


def setback_field(job: str) -> str:
    """Where the hash has the setback of a kind of job."""
    return f"setback_{job}"


def losses_field(job: str) -> str:
    """Where the hash has how often in a row a kind of job was given up because its workers died."""
    return f"losses_{job}"


def setback_text(setback: Setback) -> str:
    """As a field holds it."""
    return f"{setback.times} {setback.until_ms} {setback.what}"


def _setback(text: str) -> Setback:
    times, until_ms, what = text.split(" ")
    return Setback(int(times), what, int(until_ms))


def _waiting_for(status: IngestionStatus, setbacks: Mapping[str, Setback]) -> str | None:
    return None if status.terminal else next((setback.what for setback in setbacks.values()), None)


def _sample(text: str) -> Sample:
    return Sample(*(int(number) for number in text.split()))


def _state(text: bytes) -> State | None:
    return State(text.decode()) if text else None


def _page(row: Sequence[Any]) -> Page:
    number, text, state, done, tokens = row
    known = orjson.loads(text)
    stage = PageStage(known["stage"])
    embeds = stage is PageStage.EMBED
    return Page(
        number=int(number),
        stage=stage,
        manifest=known["manifest"],
        documents=known["documents"],
        size_bytes=known["size"],
        parsed=known.get("parsed", ""),
        source=known.get("source", ""),
        index=known.get("index", ""),
        chunks=known.get("chunks", 0),
        fault=tuple(known["fault"]) if "fault" in known else None,
        load=known.get("load"),
        losses=known.get("losses", 0),
        cut=tuple(known.get("cut", (0, 0))),
        emptied=known.get("emptied", 0),
        state=_state(state),
        embedded=int(done) if embeds else 0,
        embedding_tokens=int(tokens) if embeds else 0,
    )


def _counts(fields: Mapping[str, str], status: IngestionStatus, pages: Sequence[Page]) -> Counts:
    # What has been embedded of pages in flight is nowhere but in their tasks.
    known = {name: int(fields.get(name, 0)) for name in COUNTS}
    if not status.terminal:
        known["chunks_embedded"] += sum(page.embedded for page in pages)
        known["tokens"] += sum(page.embedding_tokens for page in pages)
    return Counts(**known)
