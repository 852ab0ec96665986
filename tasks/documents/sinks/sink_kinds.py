"""Opens the sink that a request names. A new kind of sink is one more entry of `SINKS`.

Sinks are imported when they are opened: their libraries are extras, and a worker without one serves the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.documents.sinks.postgresql.table import Table
from tasks.documents.sinks.sink import Sink
from tasks.errors import Invalid
from tasks.records.datasets import is_dataset_name
from tasks.storage.storage import Storage
from worker_config.settings import Settings


@dataclass(frozen=True, slots=True)
class SinkAccess:
    """What a sink may use: the owner and the ingestion of its documents, the storage, the settings.

    `shares_table`: it may load into a table that another owner has made.
    """

    owner: str
    ingestion: str
    storage: Storage
    settings: Settings
    shares_table: bool = False


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One value of `sink.type`.

    Attributes:
        check: cheap checks of a request's `sink`. Raises `Invalid`.
        open: the sink that a checked request means. Connects later. Raises `Invalid` where a library is missing.
    """

    check: Callable[[Mapping[str, Any], Settings], None]
    open: Callable[[Mapping[str, Any], SinkAccess], Sink]


def check_sink(spec: Mapping[str, Any], settings: Settings) -> None:
    """Cheap checks of `sink` of a request.

    Raises:
        Invalid: it names no kind, dataset or table that can be.
        Invalid: the server knows no database of this name.
    """
    _kind(spec).check(spec, settings)


def open_sink(spec: Mapping[str, Any], access: SinkAccess) -> Sink:
    """The sink of a request; to be closed. It connects later. A Parquet sink without a dataset is the ingestion's.

    Raises:
        Invalid: like `check_sink`; settings may have changed since.
        Invalid: a library is missing.
    """
    check_sink(spec, access.settings)
    return _kind(spec).open(spec, access)


def _kind(spec: Mapping[str, Any]) -> SinkKind:
    kind = SINKS.get(str(spec.get("type")))
    if kind is None:
        names = " or ".join(f'"{name}"' for name in SINKS)
        raise Invalid("invalid_value", f"sink.type must be {names}.", param="sink.type")
    return kind


def _check_parquet(spec: Mapping[str, Any], _: Settings) -> None:
    dataset = spec.get("dataset")
    if dataset is not None and not (isinstance(dataset, str) and is_dataset_name(dataset)):
        raise Invalid(
            "invalid_value", "sink.dataset must be 1 to 128 letters, digits, '_', '-' and '.'.", param="sink.dataset"
        )


def _open_parquet(spec: Mapping[str, Any], access: SinkAccess) -> Sink:
    from tasks.documents.sinks.parquet.parquet_sink import ParquetSink  # noqa: PLC0415 - its library is an extra

    name = spec.get("dataset")
    return ParquetSink(
        access.storage, access.owner, name or access.ingestion, anonymous=not name, ingestion=access.ingestion
    )


def _check_postgresql(spec: Mapping[str, Any], settings: Settings) -> None:
    Table.from_text(str(spec.get("table", "")))
    _url(spec, settings)


def _open_postgresql(spec: Mapping[str, Any], access: SinkAccess) -> Sink:
    try:
        from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink  # noqa: PLC0415 - as above
    except ImportError:
        raise Invalid("sink_refused", 'The PostgreSQL sink needs a library: pip install "embedq[postgresql]"') from None
    owner = "" if access.shares_table else access.owner
    return PostgresSink(spec["name"], _url(spec, access.settings), spec["table"], owner=owner)


def _url(spec: Mapping[str, Any], settings: Settings) -> str:
    url = dict(settings.sinks).get(str(spec.get("name", "")))
    if url is None:
        raise Invalid(
            "sink_refused",
            "sink.name is not one of the databases of this server. Whoever runs it names them in EMBEDQ_SINKS.",
            param="sink.name",
        )
    return url


SINKS: Mapping[str, SinkKind] = {
    "parquet": SinkKind(_check_parquet, _open_parquet),
    "postgresql": SinkKind(_check_postgresql, _open_postgresql),
}
"""Values of `sink.type`. The API has the same names in `api/schemas/new_ingestion.py`."""
