"""Counting requests, and what becomes of the counts of several processes."""

import pytest

from api.families import embeddings, tei
from api.families.route import DescribedRoute
from api.queue.history import SYNCHRONOUS, Figures, RequestCounts, percentile_ms
from tasks.records.history import HistoryStep, ProcessCounts, SharedFigures

SHARED = SharedFigures(passages=42.5, backlog_s=3.0)


def test_the_routes_that_answer_with_vectors_are_counted() -> None:
    routes = [route for family in (embeddings, tei) for route in family.router.routes]

    assert {r.path for r in routes if isinstance(r, DescribedRoute) and "POST" in (r.methods or ())} == SYNCHRONOUS


def test_what_is_counted() -> None:
    counts = RequestCounts()
    for status in (200, 200, 202, 400, 404, 0, 499, 500, 503):
        counts.served("POST", "/v1/embeddings", status, 1.0)
    counts.served("POST", "/embed", 429, 1.0)
    counts.served("GET", "/", 200, 1.0)
    counts.served("POST", "/v1/tasks", 503, 1.0)
    counts.served("POST", "/", 200, 0.0)

    queries, errors = counts.take()
    assert (sum(queries.values()), queries[0], errors) == (3, 2, 3)
    assert counts.take() == ({}, 0)


@pytest.mark.parametrize("seconds", [0.0004, 0.0123, 0.5, 1.0, 7.7, 60.0])
def test_a_latency_is_told_to_within_4_4_percent(seconds: float) -> None:
    counts = RequestCounts()
    counts.served("POST", "/embed", 200, seconds)

    assert percentile_ms(counts.take()[0], 0.5) == pytest.approx(1000 * seconds, rel=0.0443)


def test_percentiles() -> None:
    latencies = {-24: 98, 0: 1, 16: 1}  # 125 ms, 1 s, 4 s

    assert [round(percentile_ms(latencies, part) or 0) for part in (0.5, 0.98, 0.99, 1.0)] == [131, 131, 1044, 4177]
    assert percentile_ms({}, 0.5) is None


def test_processes_are_added_up_and_what_they_share_is_not() -> None:
    one = ProcessCounts(seconds=10.002, queries={-24: 50, 0: 1}, errors=1)
    started = ProcessCounts(seconds=2.5, queries={-24: 49}, errors=0)

    figures = Figures.from_step(HistoryStep([one, started], SHARED))

    assert figures.queries == pytest.approx(10, rel=0.001)
    assert figures.errors == pytest.approx(0.1, rel=0.001)
    assert (figures.passages, figures.backlog_seconds) == (42.5, 3.0)
    assert (round(figures.p50_ms or 0), round(figures.p99_ms or 0)) == (131, 131)


def test_one_that_stood_still_has_counted_for_longer() -> None:
    late = ProcessCounts(seconds=50, queries={0: 100}, errors=0)

    assert Figures.from_step(HistoryStep([late], None)).queries == 2


def test_without_data_there_are_no_numbers() -> None:
    assert Figures.from_step(HistoryStep([], None)) == Figures()
    quiet = Figures.from_step(HistoryStep([ProcessCounts(10, {}, 0)], SharedFigures(None, 0.0)))
    assert quiet == Figures(queries=0, errors=0, backlog_seconds=0)
