"""Shorter runs: what lasts becomes shorter in proportion."""

import dataclasses

from bench.sizes import NORMAL, for_seconds


def test_everything_that_lasts_is_scaled_and_nothing_else() -> None:
    half = for_seconds(NORMAL, NORMAL.load_s / 2)
    before, after = dataclasses.asdict(NORMAL), dataclasses.asdict(half)
    changed = {name for name in before if before[name] != after[name]}
    scaled = {"load_s", "passages_s", "under_bulk_s", "under_batch_s", "batch_lines"}
    assert changed == scaled
    assert all(after[name] == before[name] / 2 for name in scaled)
