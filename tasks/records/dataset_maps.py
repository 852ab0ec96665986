"""The map of one version of a dataset: points on a plane, and in which colour each is shown. One stored object.

It lies beside the parts of the dataset and names version and dataset, so the sweep deletes it when that version is no
longer the present one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import orjson

from tasks.records.datasets import Catalog, dataset_folder

MAX_POINTS = 50_000
CLUSTER = "cluster"
"""Stands for the cluster of a point and not for a field of its metadata."""
MAP_JOB = "map_dataset"

_NAME = re.compile(r"/map\.\d{8,}\.[0-9a-f]{32}$")
_HEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Coloring:
    """One way to colour the points: `colors` in words, and the number of one for each point, uint8 [points]."""

    name: str
    colors: Sequence[str]
    numbers: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DatasetMap:
    """A map. Its points are in no particular order: the first ones are a sample of all.

    Attributes:
        points: float32 [points, 2], from -1 to 1.
        ids: `[document id, chunk]` of each as JSON, without line breaks.
        colorings: `CLUSTER`, then fields of the metadata.
        explained: share of the variance that each axis shows.
    """

    points: npt.NDArray[np.float32]
    ids: Sequence[bytes]
    colorings: Sequence[Coloring]
    explained: tuple[float, float]

    def to_bytes(self) -> bytes:
        """For the storage. Numbers are binary: as JSON the API would spend its time on them."""
        head = {
            "points": len(self.points),
            "explained": self.explained,
            "colorings": [{"name": one.name, "colors": list(one.colors)} for one in self.colorings],
        }
        header = orjson.dumps(head)
        numbers = [self.points.astype("<f4").tobytes(), *(one.numbers.tobytes() for one in self.colorings)]
        return b"".join([len(header).to_bytes(_HEAD_BYTES), header, *numbers, b"\n".join(self.ids)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        at = _HEAD_BYTES + int.from_bytes(data[:_HEAD_BYTES])
        head = orjson.loads(data[_HEAD_BYTES:at])
        count = head["points"]
        points = np.frombuffer(data, "<f4", 2 * count, at).reshape(count, 2)
        at += points.nbytes
        colorings = []
        for one in head["colorings"]:
            colorings.append(Coloring(one["name"], one["colors"], np.frombuffer(data, np.uint8, count, at)))
            at += count
        ids = data[at:].split(b"\n") if count else []
        return cls(points, ids, colorings, tuple(head["explained"]))

    def coloring(self, name: str) -> Coloring | None:
        """The one of this name."""
        return next((one for one in self.colorings if one.name == name), None)


def map_name(catalog: Catalog) -> str:
    """Where the map of a version is stored."""
    return f"{dataset_folder(catalog.owner, catalog.dataset)}/map.{catalog.version:08d}.{catalog.id}"


def is_map(name: str) -> bool:
    """Whether a stored object is a map."""
    return _NAME.search(name) is not None
