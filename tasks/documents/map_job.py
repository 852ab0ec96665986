"""The job that draws the map of a dataset: a sample of its vectors on their two main axes, in colours."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from tasks.documents.context import JobContext
from tasks.documents.projection import clusters, principal_components
from tasks.errors import NotStored
from tasks.records.dataset_maps import CLUSTER, MAX_POINTS, Coloring, DatasetMap, map_name
from tasks.records.datasets import Catalog, DatasetPart
from tasks.search.parts import PartReader, row_groups


@dataclass(frozen=True, slots=True)
class MapLimits:
    """How much of a dataset is on its map.

    Attributes:
        points: of the map.
        sample_bytes: of their vectors, held at once: 50,000 of 1,342 numbers, fewer of longer ones.
        groups: row groups that are read of a large dataset.
        group_rows: of a full row group; of a dataset with no more than `groups` full ones all are read.
    """

    points: int = MAX_POINTS
    sample_bytes: int = 256 * 2**20
    groups: int = 64
    group_rows: int = 4096


USUAL = MapLimits()
MAX_CLUSTERS = 10
MAX_FIELDS = 32
MAX_COLORS = 12

_FOOTERS_BYTES = 8 * 2**20
_COMPONENTS = 16
"""In which clusters are looked for: distances between hundreds of numbers say little."""
_LABEL_CHARS = 100
_SEEN_FIELDS = 2 * MAX_FIELDS
_SEEN_VALUES = 4096
"""Of one field; what comes then is `other`. 50,000 different ones in each of 64 fields would be a gigabyte of texts."""


def map_dataset(context: JobContext, job_id: str) -> bytes:
    """Stores the map of the version whose catalog has the stored name `job_id`. The outcome has its `points`.

    A repetition stores the same bytes under the same name.

    Raises:
        NotStored: the version is gone, or a part of it is damaged.
        StorageUnavailable, DiskFull: it cannot be done now.
    """
    catalog = Catalog.from_bytes(context.storage.read(job_id))
    try:
        context.storage.size_bytes(map_name(catalog))
    except NotStored:
        drawn = draw_map(PartReader.within(context.storage, _FOOTERS_BYTES), catalog, context.progress)
        context.storage.write(map_name(catalog), drawn.to_bytes())
        _give_back_memory()
    return b'{"done":true}'


def draw_map(
    reader: PartReader, catalog: Catalog, progress: Callable[[], None], limits: MapLimits = USUAL
) -> DatasetMap:
    """The map of a version; raises as `PartReader` and as `progress`."""
    sample = _Sample.of(reader, catalog, progress, limits)
    coordinates, shares = principal_components(sample.vectors, _COMPONENTS, progress)
    labels = clusters(coordinates, MAX_CLUSTERS, progress)
    plane = coordinates[:, :2]
    plane = plane / (np.abs(plane).max() or 1)
    # So that the first points are a sample of all of them.
    order = np.random.default_rng(0).permutation(len(plane))
    names = [f"cluster {number + 1}" for number in range(int(labels.max()) + 1)]
    colorings = [Coloring(CLUSTER, names, labels), *sample.fields.commonest()]
    return DatasetMap(
        points=plane[order].astype(np.float32),
        ids=[sample.ids[row] for row in order.tolist()],
        colorings=[replace(one, numbers=one.numbers[order]) for one in colorings],
        explained=(float(shares[0]), float(shares[1])),
    )


def _give_back_memory() -> None:
    """What a map has freed goes back to the system: both allocators would keep it, 200 MB, until the next map."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


# The rows that are on the map.


class _Group(NamedTuple):
    part: DatasetPart
    number: int
    rows: int


def _groups(reader: PartReader, catalog: Catalog, progress: Callable[[], None], limits: MapLimits) -> list[_Group]:
    """The row groups that are read: all, or of a large dataset those at places evenly apart."""
    total = catalog.rows
    every = total <= limits.groups * limits.group_rows
    places = [int((number + 0.5) * total / limits.groups) for number in range(limits.groups)]
    groups: list[_Group] = []
    first = 0
    for part in catalog.listed:
        mine = [place - first for place in places if first <= place < first + part.rows]
        first += part.rows
        if not mine and not every:
            continue
        progress()
        with reader.open(part) as file:
            for number, (start, end) in enumerate(row_groups(file)):
                if every or any(start <= place < end for place in mine):
                    groups.append(_Group(part, number, end - start))
    return groups


class _Sample(NamedTuple):
    """Rows at even distances: their vectors of length 1, their ids as JSON, and their metadata."""

    vectors: npt.NDArray[np.float32]
    ids: list[bytes]
    fields: "_Fields"

    @classmethod
    def of(cls, reader: PartReader, catalog: Catalog, progress: Callable[[], None], limits: MapLimits) -> "_Sample":
        groups = _groups(reader, catalog, progress, limits)
        rows = sum(group.rows for group in groups)
        count = min(rows, limits.points, max(1, limits.sample_bytes // (4 * catalog.dimension)))
        chosen = np.arange(count) * rows // count
        sample = cls(np.empty((count, catalog.dimension), np.float32), [], _Fields(count))
        first = 0
        for group in groups:
            progress()
            mine = chosen[(chosen >= first) & (chosen < first + group.rows)] - first
            sample._add(reader, group, mine)
            first += group.rows
        return sample

    def _add(self, reader: PartReader, group: _Group, rows: npt.NDArray[np.intp]) -> None:
        at = len(self.ids)
        pieces = list(reader.vectors(group.part, [group.number]))
        vectors = np.concatenate([piece.rows for piece in pieces])[rows]
        lengths = np.concatenate([piece.lengths for piece in pieces])[rows, None]
        with reader.open(group.part) as file:
            table = file.read_row_group(group.number, columns=["doc_id", "chunk_index", "metadata"]).take(rows)
        self.vectors[at : at + len(rows)] = np.divide(vectors, lengths, where=lengths > 0, out=np.zeros_like(vectors))
        ids = zip(table["doc_id"].to_pylist(), table["chunk_index"].to_pylist(), strict=True)
        self.ids.extend(orjson.dumps(one) for one in ids)
        metadata = table["metadata"].combine_chunks().dictionary_encode()
        self.fields.add(at, metadata.dictionary.to_pylist(), metadata.indices.to_pylist())


# What the points have in common: the values of their metadata.

_NONE, _OTHER = -1, -2


class _Fields:
    """Values of the fields of metadata, as numbers: a text of each is kept once. `count`: of points."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: dict[str, npt.NDArray[np.int32]] = {}
        self._labels: dict[str, dict[str, int]] = {}

    def add(self, first: int, texts: Sequence[str], which: Sequence[int]) -> None:
        """Adds points from `first` on: the number of each one's metadata in `texts`."""
        known = [self._numbers(orjson.loads(text)) for text in texts]
        for point, number in enumerate(which, first):
            for name, value in known[number].items():
                self._values[name][point] = value

    def commonest(self) -> list[Coloring]:
        """The fields that most points have, with the values that most of these have."""
        counts = {name: int((values != _NONE).sum()) for name, values in self._values.items()}
        names = sorted(counts, key=lambda name: (-counts[name], name))
        return [self._field(name) for name in names[:MAX_FIELDS]]

    def _numbers(self, metadata: dict[str, Any]) -> dict[str, int]:
        numbers = {}
        for name, value in metadata.items():
            if value is None or name == CLUSTER:
                continue
            if name not in self._values:
                if len(self._values) == _SEEN_FIELDS:
                    continue
                self._values[name] = np.full(self._count, _NONE, np.int32)
                self._labels[name] = {}
            labels = self._labels[name]
            if isinstance(value, list | dict):
                numbers[name] = _OTHER
            else:
                label = (value if isinstance(value, str) else orjson.dumps(value).decode())[:_LABEL_CHARS]
                if len(labels) < _SEEN_VALUES:
                    labels.setdefault(label, len(labels))
                numbers[name] = labels.get(label, _OTHER)
        return numbers

    def _field(self, name: str) -> Coloring:
        values = self._values[name]
        labels = list(self._labels[name])
        sizes = np.bincount(values[values >= 0], minlength=len(labels))
        missing = bool((values == _NONE).any())
        room = MAX_COLORS - missing
        ranked = sorted(range(len(labels)), key=lambda number: (-sizes[number], labels[number]))
        other = len(labels) > room or bool((values == _OTHER).any())
        shown = ranked[: room - other]
        colors = [labels[number] for number in shown] + ["other"] * other + ["none"] * missing
        by_value = np.full(len(labels) + 2, len(shown), np.uint8)  # the last two are _OTHER and _NONE
        by_value[shown] = np.arange(len(shown))
        by_value[_NONE] = len(colors) - 1
        return Coloring(name, colors, by_value[values])
