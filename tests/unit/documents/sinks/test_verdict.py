"""Whether a document goes in, as a table."""

from dataclasses import replace

import pytest

from tasks.documents.sinks.sink import Arrivals, LoadOutcome, Receipt, Stamp, Verdict, judge

STAMP = Stamp("ing_2", "f", "model", "rev", 4, 20, "of model")
"""Ids come from the clocks of several hosts and say nothing of the order."""


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (None, Verdict.TAKE),
        (Receipt("a", "hash", "f", "ing_9", 9, 1, 10), Verdict.TAKE),
        (Receipt("a", "hash", "f", "ing_1", 7, 1, 30), Verdict.SUPERSEDED),
        (Receipt("a", "hash", "f", "ing_2", 7, 1, 20), Verdict.KEEP),
        (Receipt("a", "other", "f", "ing_2", 7, 1, 20), Verdict.TAKE),
        (Receipt("a", "hash", "g", "ing_2", 7, 1, 20), Verdict.TAKE),
        (Receipt("a", "hash", "f", "ing_2", 8, 1, 20), Verdict.DUPLICATE),
    ],
)
def test_verdicts(known: Receipt | None, verdict: Verdict) -> None:
    assert judge(known, 7, "hash", STAMP) is verdict


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (Receipt("a", "other", "f", "ing_9", 9, 1, 10, "b.csv"), Verdict.CONFLICT),
        (Receipt("a", "other", "f", "ing_9", 9, 1, 30, "b.csv"), Verdict.CONFLICT),
        (Receipt("a", "other", "f", "ing_9", 9, 0, 10, "b.csv"), Verdict.TAKE),
        (Receipt("a", "other", "f", "ing_9", 9, 1, 10, "a.csv"), Verdict.TAKE),
        (Receipt("a", "other", "f", "ing_9", 9, 1, 10), Verdict.TAKE),
        (Receipt("a", "hash", "f", "ing_2", 7, 1, 20, "b.csv"), Verdict.KEEP),
    ],
)
def test_nothing_takes_the_place_of_another_files_document_unless_that_was_asked_for(
    known: Receipt, verdict: Verdict
) -> None:
    assert judge(known, 7, "hash", replace(STAMP, replaces_others=False), "a.csv") is verdict
    if verdict is Verdict.CONFLICT:
        assert judge(known, 7, "hash", STAMP, "a.csv") is (Verdict.TAKE if known.order < 20 else Verdict.SUPERSEDED)


def test_what_others_brought_in_the_meantime_changes_only_that_outcome() -> None:
    arrivals = Arrivals(STAMP)
    newer = Receipt("a", "x", "f", "ing_1", 0, 1, 30)
    assert not arrivals.add("a", 1, "x", 2, newer)
    assert arrivals.add("b", 1, "x", 2, None)
    assert not arrivals.add("b", 2, "x", 2, None)
    assert arrivals.taken == {"b": Receipt("b", "x", "f", "ing_2", 1, 2, 20)}

    arrivals.drop("b", Verdict.SUPERSEDED)

    assert arrivals.taken == {}
    assert arrivals.outcomes == {
        "a": [LoadOutcome.SUPERSEDED],
        "b": [LoadOutcome.SUPERSEDED, LoadOutcome.DUPLICATE],
    }
