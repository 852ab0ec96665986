"""A list that is kept in the storage: of ten thousand names, most jobs of an ingestion need none."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import orjson

from tasks.errors import NotStored, SourceFailed
from tasks.ledger.storage import Storage


class StoredList(Sequence[Any]):
    """A JSON list, read when an element is asked for. Its length is known before.

    Whoever asks for an element may get `SourceFailed`, naming `param`, or `StorageUnavailable`.
    """

    def __init__(self, storage: Storage, name: str, length: int, param: str) -> None:
        self._storage = storage
        self._name = name
        self._length = length
        self._param = param

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._items[index]

    @cached_property
    def _items(self) -> list[Any]:
        try:
            items: list[Any] = orjson.loads(self._storage.read(self._name))
        except NotStored:
            message = "The list of what the request named is no longer in the storage."
            raise SourceFailed(message, param=self._param) from None
        return items
