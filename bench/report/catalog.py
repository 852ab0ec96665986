"""Every figure there is: its key, its words, its unit, and which direction is better. In the order of the table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `more_is_better` is None where a comparison says nothing; `digits`: always so many."""

    key: str
    title: str
    unit: str
    more_is_better: bool | None = False
    digits: int | None = None


_LEDGER = {
    "submit_us": ("submit", "us per piece"),
    "drain_us": ("drain", "us per piece"),
    "queued_mib": ("Redis, all queued", "MiB"),
    "done_mib": ("Redis, all done", "MiB"),
}

_INGESTING = {
    "api": "the API process",
    "worker": "the worker's process with the model",
    "worker_parent": "its parent",
    "documents": "the documents worker's process with the jobs",
    "documents_parent": "its parent",
    "redis": "the Redis process",
}

FIGURES = (
    Figure("passages_per_s", "passages, 32 per request, 8 connections", "/s", more_is_better=True),
    Figure("health_p99_ms", "health check meanwhile, p99", "ms"),
    Figure("health_max_ms", "health check meanwhile, worst", "ms"),
    Figure("bulk_texts_per_s", "passages as a bulk task", "/s", more_is_better=True),
    Figure("ingest_chunks_per_s", "passages as an ingestion, request to end", "/s", more_is_better=True),
    Figure("queries_1_per_s", "queries, 1 connection", "/s", more_is_better=True),
    Figure("queries_1_p50_ms", "queries, 1 connection, p50", "ms"),
    Figure("queries_1_p99_ms", "queries, 1 connection, p99", "ms"),
    Figure("queries_32_per_s", "queries, 32 connections", "/s", more_is_better=True),
    Figure("queries_32_p50_ms", "queries, 32 connections, p50", "ms"),
    Figure("queries_32_p99_ms", "queries, 32 connections, p99", "ms"),
    Figure("queries_64_per_s", "queries, 64 connections", "/s", more_is_better=True),
    Figure("queries_64_p50_ms", "queries, 64 connections, p50", "ms"),
    Figure("queries_64_p99_ms", "queries, 64 connections, p99", "ms"),
    Figure("silence_p50_ms", "first query after a silence, p50", "ms"),
    Figure("under_bulk_p50_ms", "query at 10/s beside saturating passages, p50", "ms"),
    Figure("under_bulk_p99_ms", "query at 10/s beside saturating passages, p99", "ms"),
    Figure("under_batch_p50_ms", "query at 10/s beside a batch, p50", "ms"),
    Figure("under_batch_p99_ms", "query at 10/s beside a batch, p99", "ms"),
    Figure("under_batch_max_ms", "query at 10/s beside a batch, worst", "ms"),
    Figure("under_batch_health_p99_ms", "health check beside a batch, p99", "ms"),
    Figure("under_batch_rows_per_s", "rows of a batch beside queries at 10/s", "/s", more_is_better=True),
    Figure("fidelity_least", "least cosine to the library's float32 vectors", "", more_is_better=None, digits=6),
    Figure("submits_per_s", "tasks accepted, 64 connections, one API process", "/s", more_is_better=True),
    Figure("submits_p99_ms", "tasks accepted, p99", "ms"),
    Figure("api_rss_mb", "memory of the API process after all this", "MB", more_is_better=None),
    Figure("worker_rss_mb", "memory of the worker after all this", "MB", more_is_better=None),
    Figure("api_growth_percent", "growth of the API process over many texts", "%", more_is_better=None),
    Figure("worker_growth_percent", "growth of the worker over many texts", "%", more_is_better=None),
    Figure("start_s", "start to ready, whole stack", "s", more_is_better=None),
    Figure("ingest_documents_per_s", "long ingestion, fake encoder", "/s", more_is_better=True),
    Figure("ingest_end_of_start", "its speed, last third of the time over the first", "", more_is_better=None),
    Figure("ingest_redis_used_mb", "memory used in Redis meanwhile, most", "MB", more_is_better=None),
    *(
        Figure(f"ingest_{role}_growth_percent", f"growth of {words} after the first third", "%", more_is_better=None)
        for role, words in _INGESTING.items()
    ),
)


def figures(keys: set[str]) -> list[Figure]:
    """The figures with these keys, in order; those of the ledger, whose sizes are an option, come last.

    Raises:
        KeyError: nobody has described one of them.
    """
    described = [figure for figure in FIGURES if figure.key in keys]
    ledger = sorted((key for key in keys if key.startswith("ledger_")), key=_ledger_order)
    if strange := keys.difference(ledger, (figure.key for figure in described)):
        raise KeyError(f"not in the catalog: {', '.join(sorted(strange))}")
    return [*described, *(_of_ledger(key) for key in ledger)]


def _ledger_order(key: str) -> tuple[int, int]:
    _, rows, name = key.split("_", 2)
    return list(_LEDGER).index(name), int(rows)


def _of_ledger(key: str) -> Figure:
    _, rows, name = key.split("_", 2)
    title, unit = _LEDGER[name]
    return Figure(key, f"ledger, {int(rows):,} rows, fake encoder: {title}", unit, more_is_better=None)
