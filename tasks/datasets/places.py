"""Where datasets are: the datasets of a server (EMBEDQ_DATASETS), and the one that a request means by `sink`.

Stores are imported when they are opened: their libraries are extras, and a worker without one serves the others.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tasks.datasets.contents import Contents
from tasks.datasets.names import is_dataset_name
from tasks.datasets.store import Store
from tasks.errors import Invalid
from worker_config.settings import Settings

_FOLDER = "datasets"
"""Within the storage, where it is a local folder and nothing else is set."""


class Datasets(Protocol):
    """All datasets of a server. For several threads.

    An owner is an id of letters, digits, "-" and "_"; a name is as `is_dataset_name` says. All methods but the first
    two raise as `Store` does.
    """

    def store(self, owner: str, name: str, label: str = "") -> Store:
        """A dataset, which may not exist yet, to be changed; to be closed.

        `label`: name of the owner's key, written beside a dataset that is made, for people who see the owner's id.
        """

    def contents(self, owner: str, name: str) -> Contents:
        """A dataset to be read; to be closed. Vectors in memory are shared."""

    def names(self, owner: str) -> list[str]:
        """Of an owner's datasets, in order."""

    def delete(self, owner: str, name: str, progress: Callable[[], None] = lambda: None) -> bool:
        """Deletes a dataset; whether there was one."""

    def rename(self, owner: str, name: str, to: str) -> bool:
        """Gives a dataset another name; whether it has it: not if there is none, or there is one of that name."""

    def held_bytes(self, owner: str) -> int:
        """Of all datasets of an owner, on the disk."""

    def owners(self) -> list[str]:
        """Who have datasets."""

    def purge(self, owner: str, progress: Callable[[], None] = lambda: None) -> None:
        """Deletes all datasets of an owner."""

    def forget(self, owners: AbstractSet[str]) -> None:
        """Drops what is in memory of the datasets of these owners."""


def has_datasets(settings: Settings) -> bool:
    """Whether something says where the datasets of this server are. This process may lack what opens them."""
    scheme, separator, _ = settings.storage_url.partition("://")
    return bool(settings.datasets) or not separator or scheme == "file"


def open_datasets(settings: Settings, memory_bytes: int = 0) -> Datasets:
    """The datasets of this server. Connects later. `memory_bytes`: of vectors that searches may keep.

    Raises:
        Invalid: nothing says where they are, or a library is missing.
    """
    if _is_postgresql(settings.datasets):
        _require_library()
        from tasks.datasets.postgresql.datasets import PostgresDatasets  # noqa: PLC0415 - its library is an extra

        return PostgresDatasets(settings.datasets)
    from tasks.datasets.sqlite.datasets import SqliteDatasets  # noqa: PLC0415 - numpy takes 100 ms

    return SqliteDatasets(_folder(settings), memory_bytes)


def check_sink(spec: Mapping[str, Any], settings: Settings) -> None:
    """Cheap checks of `sink` of a request.

    Raises:
        Invalid: it names no dataset or table that can be, or the server has no place or no database for it.
    """
    if spec.get("type") == "postgresql":
        _url(spec, settings)
        return
    name = spec.get("dataset")
    if name is not None and not (isinstance(name, str) and is_dataset_name(name)):
        raise Invalid(
            "invalid_value", "sink.dataset must be 1 to 128 letters, digits, '_', '-' and '.'.", param="sink.dataset"
        )
    if not _is_postgresql(settings.datasets):
        _folder(settings)


def open_store(
    spec: Mapping[str, Any],
    settings: Settings,
    *,
    owner: str,
    ingestion: str,
    shares_table: bool = False,
    label: str = "",
) -> Store:
    """The dataset of a request, to be changed; to be closed. It connects later.

    Args:
        spec: `sink` of the request. A dataset without a name is the ingestion's.
        settings: of this process.
        owner: of the documents.
        ingestion: its id.
        shares_table: a table that another owner has made is open to this one, too.
        label: see `Datasets.store`.

    Raises:
        Invalid: like `check_sink`, as settings may have changed since; or a library is missing.
    """
    if spec.get("type") != "postgresql":
        return open_datasets(settings).store(owner, spec.get("dataset") or ingestion, label)
    url = _url(spec, settings)
    _require_library()
    from tasks.datasets.postgresql.connection import Database  # noqa: PLC0415 - its library is an extra
    from tasks.datasets.postgresql.load import PostgresStore  # noqa: PLC0415 - likewise
    from tasks.datasets.postgresql.schema import Access, TableName  # noqa: PLC0415 - likewise

    return PostgresStore(Database(url, spec["name"]), TableName.from_text(spec["table"]), Access(owner, shares_table))


def open_table(name: str, table: str, settings: Settings, *, owner: str, shares_table: bool) -> Contents:
    """A table of a connection of this server, to be read; to be closed. The last two: see `open_store`.

    Raises:
        Invalid: there is no such connection, or a library is missing.
    """
    url = _url({"name": name}, settings)
    _require_library()
    from tasks.datasets.postgresql.connection import Database  # noqa: PLC0415 - its library is an extra
    from tasks.datasets.postgresql.schema import Access, TableName  # noqa: PLC0415 - likewise
    from tasks.datasets.postgresql.search import PostgresContents  # noqa: PLC0415 - likewise

    place = TableName.from_text(table)
    return PostgresContents(f"{name}:{table}", Database(url, name), place, Access(owner, shares_table))


def _is_postgresql(place: str) -> bool:
    return urlsplit(place).scheme in {"postgresql", "postgres"}


def _folder(settings: Settings) -> Path:
    if settings.datasets:
        return Path(settings.datasets.removeprefix("file://")).expanduser()
    if not has_datasets(settings):
        raise Invalid(
            "sink_refused",
            "The storage of this server is a bucket, and datasets cannot be in one. Whoever runs it sets "
            "EMBEDQ_DATASETS to a folder on a local disk, or to a postgresql:// URL; or name a table of EMBEDQ_SINKS.",
            param="sink.dataset",
        )
    return Path(settings.storage_url.removeprefix("file://")).expanduser() / _FOLDER


def _url(spec: Mapping[str, Any], settings: Settings) -> str:
    url = dict(settings.sinks).get(str(spec.get("name", "")))
    if url is None:
        raise Invalid(
            "sink_refused",
            "sink.name is not one of the databases of this server. Whoever runs it names them in EMBEDQ_SINKS.",
            param="sink.name",
        )
    return url


def _require_library() -> None:
    if find_spec("asyncpg") is None:
        raise Invalid("sink_refused", 'PostgreSQL needs a library on the server: pip install "embedq[postgresql]"')
