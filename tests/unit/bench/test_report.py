"""From values to a table, a file and a page."""

import json
import math
from pathlib import Path

import pytest

from bench.load.plan import LoadResult
from bench.report import document, table
from bench.report.catalog import FIGURES, figures
from bench.report.results import Results, Spread
from bench.scenarios.memory import growth_percent
from bench.scenarios.observed import Observed, of_load


def _results() -> Results:
    results = Results({"date": "today", "processor": "a fast one"})
    for values in ({"passages_per_s": 140.0}, {"passages_per_s": 150.0}, {"passages_per_s": 145.0}):
        results.add("embedq", Observed(values))
    results.add("embedq", Observed({"queries_32_p99_ms": 50.0, "api_rss_mb": 88.25}, ["it was noisy"]))
    results.add("locked", Observed({"passages_per_s": 20.0, "queries_32_p99_ms": 400.0}))
    results.add("bare", Observed({"passages_per_s": 160.0}))
    return results


def _cells(results: Results) -> list[list[str]]:
    lines = [line for line in table.render(results).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_shows_medians_extremes_and_ratios() -> None:
    header, rule, *rows = _cells(_results())
    assert header == ["figure", "unit", "embedq", "bare", "locked", "of bare", "gain"]
    assert rule == ["---", "---", *["---:"] * 5]
    assert [row[1:] for row in rows] == [
        ["/s", "145 (140 to 150)", "160", "20.0", "0.91", "7.25x"],
        ["ms", "50.0", "", "400", "", "8.00x"],
        ["MB", "88.2", "", "", "", ""],
    ]


def _beside_peers(**fidelity: float) -> Results:
    results = _results()
    for name, passages, p99_ms in (("quick", 290.0, 40.0), ("slow", 29.0, 30.0)):
        results.add(name, Observed({"passages_per_s": passages, "queries_32_p99_ms": p99_ms}))
    for name, least in fidelity.items():
        results.add(name, Observed({"fidelity_least": least}))
    return results


def test_each_figure_is_compared_with_the_peer_that_is_best_in_it() -> None:
    header, _, *rows = _cells(_beside_peers(quick=0.99995, slow=1.0))
    assert header == ["figure", "unit", "embedq", "bare", "locked", "quick", "slow", "of bare", "gain", "best peer"]
    assert [row[-1] for row in rows] == ["0.50x (quick)", "0.60x (slow)", "", ""]


def test_a_peer_that_computes_something_else_is_shown_and_not_compared_with() -> None:
    header, _, *rows = _cells(_beside_peers(quick=0.9998, slow=0.9999))
    assert [row[-1] for row in rows] == ["5.00x (slow)", "0.60x (slow)", "", ""]
    fidelity = next(row for row in rows if row[0].startswith("least cosine"))
    assert fidelity[header.index("quick") : header.index("slow") + 1] == ["0.999800", "0.999900"]


def test_a_peer_of_unknown_fidelity_is_not_compared_with() -> None:
    assert [row[-1] for row in _cells(_beside_peers())[2:]] == ["", "", ""]


def test_header_and_notes_are_around_it() -> None:
    text = table.render(_results())
    assert text.startswith("* date: today\n* processor: a fast one\n\n| figure")
    assert text.endswith("Notes:\n\n* embedq: it was noisy\n")


def test_a_peer_alone_has_no_ratios() -> None:
    results = Results({})
    results.add("peer", Observed({"queries_1_p50_ms": 2.5}))
    assert _cells(results) == [
        ["figure", "unit", "peer"],
        ["---", "---", "---:"],
        ["queries, 1 connection, p50", "ms", "2.50"],
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_three_digits(value: float, expected: str) -> None:
    assert table.shown(value) == expected


def test_a_ratio_without_a_direction_or_a_second_value_is_nothing() -> None:
    spread = Spread(2.0, 1.0, 3.0)
    memory = next(figure for figure in FIGURES if figure.key == "api_rss_mb")
    rate = next(figure for figure in FIGURES if figure.key == "passages_per_s")
    assert table.ratio(memory, spread, spread) == ""
    assert table.ratio(rate, spread, None) == ""
    assert table.ratio(rate, spread, Spread(0, 0, 0)) == ""


def test_the_jobs_of_the_ledger_come_last_by_kind_and_size() -> None:
    keys = {"ledger_1000000_drain_us", "ledger_10000_drain_us", "ledger_10000_submit_us", "start_s"}
    assert [figure.key for figure in figures(keys)] == [
        "start_s",
        "ledger_10000_submit_us",
        "ledger_10000_drain_us",
        "ledger_1000000_drain_us",
    ]


def test_a_figure_that_nobody_described_is_noticed() -> None:
    with pytest.raises(KeyError, match="surprise"):
        figures({"start_s", "surprise"})


def test_results_survive_a_file(tmp_path: Path) -> None:
    _results().save(tmp_path / "deep" / "results.json")
    assert Results.load(tmp_path / "deep" / "results.json") == _results()


def test_failed_requests_become_notes_and_figures_without_answers_are_left_out(tmp_path: Path) -> None:
    nothing = LoadResult(0, 3, 0.0, math.nan, math.nan, math.nan, math.nan)
    observed = of_load("queries", nothing, 10, {"queries_1_per_s": 0.0, "queries_1_p50_ms": nothing.p50_ms})
    assert observed.values == {"queries_1_per_s": 0.0}
    assert observed.notes == ["queries: 3 of 3 requests failed"]
    results = Results({})
    results.add("locked", observed)
    results.save(tmp_path / "results.json")
    assert "NaN" not in (tmp_path / "results.json").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["values"] == {"locked": {"queries_1_per_s": [0.0]}}


def test_repeated_bodies_are_told() -> None:
    many = LoadResult(11, 0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert of_load("queries", many, 11, {}).notes == []
    assert "only 10 different bodies" in of_load("queries", many, 10, {}).notes[0]


def test_the_generated_section_alone_changes() -> None:
    page = f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n"
    once = document.replace_section(page, "new\n")
    assert once == f"before\n{document.BEGIN}\n\nnew\n\n{document.END}\nafter\n"
    assert document.replace_section(once, "new") == once


def test_a_page_without_a_section_is_refused() -> None:
    with pytest.raises(document.NoSectionError):
        document.replace_section("nothing here", "new")


def test_growth_is_of_the_largest_sample_over_the_first() -> None:
    assert growth_percent([100.0, 98.0, 103.0, 101.0]) == pytest.approx(3)
    assert growth_percent([100.0]) == 0
