"""From values to a table and a file; and what the words after `python -m bench` choose."""

import json
from pathlib import Path

from bench.__main__ import options, parser
from bench.load import LoadResult
from bench.report import Observed, Results, of_load


def _results(**fidelity: float) -> Results:
    results = Results({"date": "today"})
    for value in (140.0, 150.0, 145.0):
        results.add("embedq", Observed({"passages_per_s": value}))
    results.add("embedq", Observed({"queries_32_p99_ms": 50.0, "api_rss_mb": 88.25}, ["it was noisy"]))
    results.add("locked", Observed({"passages_per_s": 20.0, "queries_32_p99_ms": 400.0}))
    results.add("bare", Observed({"passages_per_s": 160.0}))
    for name, least in fidelity.items():
        results.add(name, Observed({"passages_per_s": 290.0, "queries_32_p99_ms": 40.0, "fidelity_least": least}))
    return results


def _cells(results: Results) -> list[list[str]]:
    lines = [line for line in results.table().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_shows_medians_extremes_and_ratios() -> None:
    header, _, *rows = _cells(_results())
    assert header == ["figure", "unit", "embedq", "bare", "locked", "of bare", "gain", "best peer"]
    assert rows == [
        ["passages", "/s", "145 (140 to 150)", "160", "20.0", "0.91", "7.25x", ""],
        ["queries 32 p99", "ms", "50.0", "", "400", "", "8.00x", ""],
        ["api rss", "MB", "88.2", "", "", "", "", ""],
    ]


def test_a_peer_is_compared_with_if_it_computes_the_same() -> None:
    assert [row[-1] for row in _cells(_results(equal=0.99995, other=0.9998))[2:]] == [
        "0.50x (equal)",
        "0.80x (equal)",
        "",
        "",
    ]


def test_failures_and_repetitions_become_notes_and_a_file_holds_no_nan(tmp_path: Path) -> None:
    nothing = LoadResult([], 0.0, {"status 503": 3}, "full")
    observed = of_load("queries", nothing, 10, {"queries_1_per_s": 0.0, "queries_1_p50_ms": nothing.percentile(50)})
    assert observed.notes == ["queries: 3 of 3 requests failed (3 with status 503): full"]
    assert "only 10 different bodies" in of_load("queries", LoadResult([1.0] * 11, 1.0), 10, {}).notes[0]
    results = Results({})
    results.add("locked", observed)
    results.save(tmp_path / "deep" / "results.json")
    assert json.loads((tmp_path / "deep" / "results.json").read_text())["values"] == {
        "locked": {"queries_1_per_s": [0.0]}
    }


def test_peers_are_measured_only_if_somebody_asks_and_then_their_fidelity_too() -> None:
    def chosen(*words: str) -> tuple[list[str], list[str]]:
        found = options(parser().parse_args(words))
        return list(found.servers), list(found.scenarios)

    assert chosen("--only", "passages") == (["bare", "embedq", "locked"], ["passages"])
    assert chosen("--only", "passages", "--peers")[0] == ["bare", "embedq", "locked", "infinity", "openvino"]
    assert chosen("--only", "passages", "--servers", "infinity") == (["infinity"], ["passages", "fidelity"])
    assert "ingest-million" not in chosen()[1]
