"""Which sink a request means."""

from collections.abc import Mapping
from typing import Any

from tasks.documents.sinks.parquet.parquet_sink import ParquetSink
from tasks.documents.sinks.postgresql.tables import Table
from tasks.documents.sinks.sink import Sink
from tasks.errors import InvalidValue, SinkRefused
from tasks.records.datasets import is_dataset_name
from tasks.storage.storage import Storage
from worker_config.settings import Settings


def check_sink(spec: Mapping[str, Any], settings: Settings) -> None:
    """Cheap checks of `sink` of a request.

    Raises:
        InvalidValue: it names no kind, dataset or table that can be.
        SinkRefused: the server knows no database of this name.
    """
    if spec.get("type") == "parquet":
        dataset = spec.get("dataset")
        if dataset is not None and not (isinstance(dataset, str) and is_dataset_name(dataset)):
            raise InvalidValue("sink.dataset must be 1 to 128 letters, digits, '_', '-' and '.'.", param="sink.dataset")
        return
    if spec.get("type") != "postgresql":
        raise InvalidValue('sink.type must be "parquet" or "postgresql".', param="sink.type")
    Table.parse(str(spec.get("table", "")))
    _url(spec, settings)


def open_sink(spec: Mapping[str, Any], *, owner: str, ingestion: str, storage: Storage, settings: Settings) -> Sink:
    """The sink that a request means; to be closed. Connects later. A Parquet sink without a dataset is the ingestion's.

    Raises:
        InvalidValue, SinkRefused: like `check_sink`; settings may have changed since.
        SinkRefused: a library is missing.
    """
    check_sink(spec, settings)
    if spec["type"] == "parquet":
        named = spec.get("dataset")
        return ParquetSink(storage, owner, named or ingestion, anonymous=not named, ingestion=ingestion)
    try:
        from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink  # noqa: PLC0415 - its library is an extra
    except ImportError:
        raise SinkRefused('The PostgreSQL sink needs a library: pip install "embedq[postgresql]"') from None
    return PostgresSink(spec["name"], _url(spec, settings), spec["table"])


def _url(spec: Mapping[str, Any], settings: Settings) -> str:
    url = dict(settings.sinks).get(str(spec.get("name", "")))
    if url is None:
        raise SinkRefused(
            "sink.name is not one of the databases of this server. Whoever runs it names them in EMBEDQ_SINKS.",
            param="sink.name",
        )
    return url
