"""Scores that others have published, to compare with."""

from collections.abc import Mapping
from dataclasses import dataclass

_MTEB = "MTEB results of all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Published:
    """One score. `tolerance`: how far a faithful service may be off, in the score's own unit."""

    score: float
    tolerance: float
    source: str


# Model without its organisation -> (data set, metric) -> score.
SCORES: Mapping[str, Mapping[tuple[str, str], Published]] = {
    "all-MiniLM-L6-v2": {
        ("stsb-en-test", "Spearman of cosine"): Published(0.82032, 0.001, "model card and MTEB, STSBenchmark"),
        ("scifact", "nDCG@10"): Published(0.64508, 0.002, _MTEB),
        ("scifact", "MRR@10"): Published(0.60472, 0.004, _MTEB),
        ("scifact", "R@100"): Published(0.92500, 0.004, _MTEB),
    }
}


def published(model: str, dataset: str, metric: str) -> Published | None:
    """What is known; None for other models and data."""
    return SCORES.get(model.rpartition("/")[2], {}).get((dataset, metric))
