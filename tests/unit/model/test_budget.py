"""The default budget of one forward pass, by device."""

import pytest

from tasks.model.batching import PassBudget, default_budget


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", 1024), ("cuda:0", 16_384), ("cuda:1", 16_384)],
)
def test_a_card_takes_more_at_once_than_a_processor(device: str, expected: int) -> None:
    assert default_budget(device) == expected


@pytest.mark.parametrize(
    ("tokens_per_s", "beside_urgent_texts", "otherwise"),
    [(100_000, 1024, 1024), (10_000, 800, 1024), (5_000, 512, 800), (100, 512, 512)],
)
def test_a_pass_of_bulk_work_is_short_on_any_machine(
    tokens_per_s: float, beside_urgent_texts: int, otherwise: int
) -> None:
    budget = PassBudget.from_settings("cpu", None)
    assert budget.most == 1024
    assert budget.bulk(tokens_per_s, urgent=True) == beside_urgent_texts
    assert budget.bulk(tokens_per_s, urgent=False) == otherwise


def test_what_an_operator_sets_is_meant() -> None:
    budget = PassBudget.from_settings("cpu", 4096)
    assert (budget.most, budget.bulk(100, urgent=True)) == (4096, 4096)
