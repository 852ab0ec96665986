"""Ingestions for routes: made from a body, rendered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from api.body import parse_object
from api.ingestion_checks import check_body, require_known_fields
from api.ingestion_schemas import IngestionBody, Source
from api.owned import Kind
from api.registry import Registry
from api.validation import check_options, checked
from tasks.errors import IngestionUnknown, InvalidValue
from tasks.ledger.ingestion_operations import list_ingestions, read_ingestion
from tasks.ledger.ingestions import FOLDER, Ingestion, NewIngestion, is_ingestion_id, new_ingestion_id
from worker_config.settings import Settings

INGESTIONS = Kind(
    "ingestion", is_ingestion_id, read_ingestion, list_ingestions, IngestionUnknown, "POST /v1/ingestions"
)
_MAX_KEY_CHARS = 255
_DIGEST_CHARS = 32
_KINDS = ("files", "urls", "documents")
_URLS_SHOWN = 10
_OPTIONS = ("dimensions", "prompt_name", "input_type", "metadata", "on_conflict")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a `POST /v1/ingestions` asks for.

    Attributes:
        files: ids of uploads that it names.
        listed: the files, URLs or documents as a JSON list, to be stored under `stored`.
    """

    ingestion: NewIngestion
    files: Sequence[str]
    stored: str
    listed: bytes


def asked_for(body: bytes, *, owner: str, idempotency_key: str | None, settings: Settings, registry: Registry) -> Asked:
    """The ingestion that a body describes.

    Raises:
        RequestError: the subclass that says what is wrong with the body or the key.
        RedisUnavailable: which models there are is not known yet.
    """
    fields = parse_object(body)
    require_known_fields(fields)
    parsed = checked(IngestionBody, fields, max_inputs=settings.max_inputs)
    model = registry.resolve(parsed.model)
    entry = registry.entry(model)
    check_body(parsed, settings, entry.max_tokens if entry else None)
    check_options(parsed, model, registry)
    ingestion_id = new_ingestion_id()
    place = "inline" if parsed.source.documents is not None else "listed"
    stored = f"{FOLDER}/{ingestion_id}/{place}.json"
    return Asked(
        NewIngestion(
            id=ingestion_id,
            owner=owner,
            spec=_spec(parsed, model) | {place: stored},
            ttl_ms=round(settings.batch_ttl_s * 1000),
            key=_key(idempotency_key, body),
        ),
        [file.id for file in parsed.source.files or ()],
        stored,
        orjson.dumps(_listed(parsed.source)[1]),
    )


def ingestion_json(found: Ingestion) -> dict[str, Any]:
    """The ingestion object. Times are Unix seconds."""
    counts, spec, rate = found.counts, found.spec, found.rate
    started = [at for status, at in found.times.items() if status != "queued"]
    return {
        "id": found.id,
        "object": "ingestion",
        "status": found.status.value,
        "created_at": found.created_ms // 1000,
        "started_at": min(started) // 1000 if started else None,
        "finished_at": _seconds(found.finished_ms),
        "expires_at": _seconds(found.expires_ms),
        "model": found.model,
        "source": _source(spec),
        "chunking": spec["chunking"],
        "sink": spec["sink"],
        "mode": spec["mode"],
        "dry_run": found.dry_run,
        "metadata": spec.get("metadata") or {},
        "file_counts": {
            "total": counts.documents,
            "in_progress": counts.in_progress,
            "completed": counts.loaded + counts.unchanged,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
            "unchanged": counts.unchanged,
            "deleted": counts.deleted,
            "replaced": counts.replaced,
        },
        "listing_complete": found.listing_complete,
        "chunks": {
            "total": counts.chunks,
            "embedded": counts.chunks_embedded,
            "loaded": counts.chunks_loaded,
            "tokens": counts.chunk_tokens,
        },
        "usage": {"prompt_tokens": counts.tokens, "total_tokens": counts.tokens},
        "rate": rate
        and {"documents_per_s": round(rate.documents_per_s, 2), "chunks_per_s": round(rate.chunks_per_s, 2)},
        "eta_s": None if found.eta_s is None else round(found.eta_s, 1),
        "estimate_s": found.estimate_s,
        "error": {"code": found.error.code, "message": found.error.message} if found.error else None,
        "waiting_for": found.waiting_for,
        "resumable": found.resumable,
    }


def _source(spec: Mapping[str, Any]) -> dict[str, Any]:
    source = spec["source"]
    kind = next(name for name in _KINDS if source.get(name) is not None)
    said = {name: source[name] for name in ("fields", "format", "records") if source.get(name) is not None}
    shown = {"urls": spec["urls_shown"]} if "urls_shown" in spec else {}
    return {"type": kind, "count": source[kind], **shown, **said}


def _listed(source: Source) -> tuple[str, list[Any]]:
    """Which kind of source it is, and the list of what it names as JSON."""
    if source.urls is not None:
        return "urls", source.urls
    kind, models = ("files", source.files) if source.files is not None else ("documents", source.documents)
    return kind, [one.model_dump(exclude_none=True) for one in models or ()]


def _spec(body: IngestionBody, model: str) -> dict[str, Any]:
    kind, listed = _listed(body.source)
    # Every step and every poll reads the spec: ten thousand ids of files have no place in it.
    source = body.source.model_dump(exclude_none=True, exclude={*_KINDS}) | {kind: len(listed)}
    if body.source.fields and body.source.fields.metadata == ["*"]:
        source["fields"]["metadata"] = "*"
    options = {name: value for name in _OPTIONS if (value := getattr(body, name)) is not None}
    return {
        "source": source,
        "chunking": body.chunking.model_dump(exclude_none=True) if body.chunking else {"type": "auto"},
        "sink": body.sink.model_dump(exclude_none=True) if body.sink else {"type": "parquet"},
        "mode": body.mode,
        "model": model,
        "normalize": body.normalize,
        **({"dry_run": True} if body.dry_run else {}),
        **({"urls_shown": listed[:_URLS_SHOWN]} if kind == "urls" else {}),
        **options,
    }


def _seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000


def _key(key: str | None, body: bytes) -> tuple[str, str] | None:
    if key is None:
        return None
    if not 1 <= len(key) <= _MAX_KEY_CHARS:
        raise InvalidValue(f"Idempotency-Key must have 1 to {_MAX_KEY_CHARS} characters.", param="Idempotency-Key")
    return _digest(key.encode()), _digest(body)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGEST_CHARS]
