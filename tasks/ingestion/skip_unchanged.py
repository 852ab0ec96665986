"""What decides, beside its content, what becomes of a document: the fingerprint, and what each chunk asks. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from tasks.datasets.loads import Stamp
from tasks.errors import Invalid
from tasks.ingestion.chunking.chunk_settings import CHUNKER_VERSION, ChunkSettings
from tasks.ingestion.parsing.extracted import PARSER_VERSION
from tasks.item import Options
from tasks.model import Model
from tasks.records.ingestions import IngestionRecord
from tasks.records.jobs import Job
from tasks.wire.field_aliases import prompt_for

_DEFAULT_CHUNKING = {"type": "auto"}
_OTHER_THAN_COSINE = {
    "dot": ("dot product", "<#>"),
    "euclidean": ("Euclidean distance", "<->"),
    "manhattan": ("Manhattan distance", "<+>"),
}
"""By `Model.similarity`: in words, and pgvector's operator."""


def chunk_settings(spec: Mapping[str, Any]) -> ChunkSettings:
    """How the request wants documents to be cut."""
    return ChunkSettings.from_json(spec.get("chunking") or _DEFAULT_CHUNKING)


def prompt_name(spec: Mapping[str, Any], entry: Model) -> str | None:
    """The prompt before each chunk: a chunk is a document, unless the request says otherwise.

    None: the model's default prompt, if it has one.

    Raises:
        Invalid: the model has no prompt of this name.
    """
    name = prompt_for(spec.get("input_type") or "document", entry, named=spec.get("prompt_name"))
    if Options(name).unfit(entry.dimension, entry.prompts):
        prompts = ", ".join(entry.prompts) or "none"
        raise Invalid("invalid_value", f"The model has no prompt of this name; it has: {prompts}.", param="prompt_name")
    return name


def dimension(spec: Mapping[str, Any], entry: Model) -> int:
    """Of the vectors.

    Raises:
        Invalid: the model's vectors have fewer.
    """
    dimensions: int = spec.get("dimensions") or entry.dimension
    if Options(dimensions=dimensions).unfit(entry.dimension, entry.prompts):
        raise Invalid("invalid_value", f"The model's vectors have {entry.dimension} dimensions.", param="dimensions")
    return dimensions


def fingerprint(spec: Mapping[str, Any], entry: Model) -> str:
    """64 hexadecimal digits that change with whatever changes vectors or chunks of an unchanged document.

    Device and precision do not: their vectors differ by rounding, and another GPU must not mean doing all again.
    """
    determining = {
        "parser": PARSER_VERSION,
        "chunker": CHUNKER_VERSION,
        "chunking": chunk_settings(spec).to_json(),
        "model": entry.id,
        "revision": entry.revision,
        "prompt": prompt_name(spec, entry),
        "dimensions": dimension(spec, entry),
        "normalize": spec.get("normalize") is not False,
    }
    return hashlib.sha256(orjson.dumps(determining, option=orjson.OPT_SORT_KEYS)).hexdigest()


def vectors(spec: Mapping[str, Any], entry: Model) -> str:
    """In words what makes vectors comparable with others: a sink holds those of one kind."""
    prompt = prompt_name(spec, entry)
    return ", ".join(
        [
            entry.made_by,
            f"{dimension(spec, entry)} dimensions",
            *([f"prompt {prompt!r}"] if prompt else []),
            "normalized" if spec.get("normalize") is not False else "not normalized",
        ]
    )


def warning(spec: Mapping[str, Any], entry: Model) -> str:
    """What the owner of the vectors should know of them; "" for nothing."""
    if entry.similarity not in _OTHER_THAN_COSINE:
        return ""
    if spec["sink"]["type"] == "postgresql" and spec.get("normalize") is False:
        return ""
    words, operator = _OTHER_THAN_COSINE[entry.similarity]
    return (
        f"{entry.id} compares vectors by {words}. Datasets are searched by cosine, and give another order. "
        f'For the order of the model load a table of PostgreSQL with "normalize": false, and search it by {operator}.'
    )


def row_options(spec: Mapping[str, Any], entry: Model) -> dict[str, Any]:
    """What each chunk's row asks of the model beside its text."""
    choices = {"prompt_name": prompt_name(spec, entry), "dimensions": spec.get("dimensions")}
    options: dict[str, Any] = {name: value for name, value in choices.items() if value is not None}
    return options if spec.get("normalize") is not False else options | {"normalize": False}


def _replaces_others(spec: Mapping[str, Any]) -> bool:
    """Whether a document takes the place of one that another file has brought under the same id."""
    return bool((spec.get("on_conflict") or ("fail" if spec["mode"] == "skip_unchanged" else "replace")) == "replace")


def stamp(job: Job[IngestionRecord]) -> Stamp:
    """Of an ingestion that has begun."""
    record = job.record
    return Stamp(
        ingestion=record.id,
        order=job.order,
        fingerprint=record.fingerprint or "",
        model=record.model,
        model_revision=record.revision or "",
        dimension=record.dimension or 0,
        vectors=record.vectors or "",
        replaces_others=_replaces_others(record.request),
        reloads=record.request["mode"] == "upsert",
        dataset_id=record.dataset_id,
    )


def noted(record: IngestionRecord, model: Model) -> dict[str, Any]:
    """What an ingestion notes of its model and its pipeline when it begins.

    Raises:
        Invalid: the model cannot do what is asked of it.
    """
    request = record.request
    return {
        "revision": model.revision,
        "dimension": dimension(request, model),
        "fingerprint": fingerprint(request, model),
        "vectors": vectors(request, model),
        "warning": warning(request, model),
    }
