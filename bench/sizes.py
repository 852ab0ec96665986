"""How long and how much: the normal run and the quick one."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """Durations in seconds, counts of texts.

    Attributes:
        warm_s: load before each measurement, not counted.
        load_s: of one measurement of queries or submissions, and of each part of the bare encoder's.
        passages_s: of one measurement of passages; slow servers need several requests in it.
        bulk_s: a bulk task is made about this long. It begins and ends with half a second in which not all streams
            have work, so a short one measures that.
        silence_s: how long nobody asks before a first query.
        silences: how many such queries.
        beside_s: of queries beside bulk work.
        memory_texts: memory is compared from the first count of texts to the second.
        passages: of an ingestion beside the bare encoder; it should last half a minute.
        documents: of the long ingestion.
        sample_s: between two looks at it.
    """

    warm_s: float = 2.0
    load_s: float = 8.0
    passages_s: float = 15.0
    bulk_s: float = 30.0
    silence_s: float = 10.0
    silences: int = 3
    beside_s: float = 15.0
    memory_texts: tuple[int, int] = (20_000, 200_000)
    passages: int = 3_000
    documents: int = 1_000_000
    sample_s: float = 5.0

    def lasting(self, load_s: float) -> "Sizes":
        """With loads of queries of so many seconds; passages, and what runs beside other work, in proportion.

        Everything else keeps its length: silences are about it, and of shorter bulk tasks and ingestions the beginning
        and the end would count for more.
        """
        factor = load_s / self.load_s
        scaled = {name: factor * getattr(self, name) for name in ("load_s", "passages_s", "beside_s")}
        return replace(self, **scaled)


NORMAL = Sizes()
QUICK = Sizes(
    warm_s=1,
    load_s=2,
    passages_s=3,
    bulk_s=2,
    silence_s=3,
    silences=1,
    beside_s=3,
    memory_texts=(4_000, 20_000),
    passages=500,
    documents=20_000,
    sample_s=0.5,
)
