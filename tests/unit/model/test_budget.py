"""The default budget of one forward pass, by device."""

import pytest

from tasks.model.budget import default_budget


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", 1024), ("cuda:0", 16_384), ("cuda:1", 16_384)],
)
def test_a_card_takes_more_at_once_than_a_processor(device: str, expected: int) -> None:
    assert default_budget(device) == expected
