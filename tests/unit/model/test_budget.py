"""The default budget of one forward pass, by device and by how many share it."""

import pytest

from tasks.model.budget import default_budget


@pytest.mark.parametrize(
    ("device", "streams", "expected"),
    [("cpu", 1, 1024), ("cpu", 2, 512), ("cpu", 4, 512), ("cuda:0", 2, 16_384), ("cuda:1", 1, 16_384)],
)
def test_a_card_takes_more_at_once_than_a_processor(device: str, streams: int, expected: int) -> None:
    assert default_budget(device, streams) == expected
