"""The fault trials' own judgement: what counts as lost and as doubled, and how it is shown."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.faults import table, tenants
from bench.faults.account import DIMENSION, Account, expected_vectors
from bench.faults.catalog import FAULTS
from bench.faults.trial import Round

TEXTS = {"a": "one text", "b": "another text"}
A, B = expected_vectors(list(TEXTS.values()))
NONE = np.full(DIMENSION, np.nan, np.float32)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"a": [A], "b": [B]}, Account(2, completed=2), id="all right"),
        pytest.param({"a": [A]}, Account(2, completed=1, lost=1), id="one is missing"),
        pytest.param({"a": [A], "b": [NONE]}, Account(2, completed=1, lost=1), id="one has failed"),
        pytest.param({"a": [A, A], "b": [B]}, Account(2, completed=2, doubled=1), id="one came twice"),
        pytest.param({"a": [B], "b": [A]}, Account(2, doubled=2), id="each has the other's"),
        pytest.param({"a": [A, B], "b": []}, Account(2, completed=1, lost=1, doubled=1), id="one under another"),
    ],
)
def test_every_vector_is_compared(found: dict[str, list[object]], expected: Account) -> None:
    account = Account()
    account.add_found(TEXTS, found)
    assert account == expected


def test_a_line_is_the_sum_of_its_rounds(tmp_path: Path) -> None:
    rounds = [
        Round(Account(1_000, completed=999, lost=1, again=5), 1.0, Counter({"503 redis_unavailable": 3})),
        Round(Account(1_000, completed=1_000, doubled=2), 2.0, Counter({"ConnectError": 4}), surplus=1),
        Round(Account(1_000, completed=1_000), 9.0),
    ]
    line = table.Line.of("it burns", rounds)
    text = table.render([line])
    cells = [cell.strip() for cell in text.splitlines()[2].strip("|").split("|")]
    assert cells == ["it burns", "3", "3,000", "2,999", "1", "3", "7", "2.0 (worst 9.0)"]
    assert "* it burns: 5 texts were told to be unknown" in text
    table.save(tmp_path / "lines.json", {"fire": line})
    assert table.load(tmp_path / "lines.json") == {"fire": line}


def test_every_fault_has_a_name_and_a_title_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len({fault.title for fault in FAULTS}) == len(FAULTS)


def test_a_figure_shows_its_spread_and_its_target(tmp_path: Path) -> None:
    figures = [
        tenants.Figure("how fair", "", [0.97, 0.99, 0.98], "at least 0.95"),
        tenants.Figure("p99", "ms", [7], ""),
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tenants.render(figures).splitlines()]
    assert rows[2:] == [["how fair", "0.98 (0.97 to 0.99)", "at least 0.95"], ["p99", "7 ms", ""]]
    tenants.save(tmp_path / "figures.json", {"fairness": figures})
    assert tenants.load(tmp_path / "figures.json") == {"fairness": figures}


def test_a_short_run_has_one_of_each_kind_of_fault() -> None:
    quick = {fault.rig for fault in FAULTS if fault.quick}
    assert quick == {fault.rig for fault in FAULTS}
