"""Ingestions as they are measured: what samples over time say, and the plot of them."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.report.catalog import figures
from bench.report.results import Results
from bench.report.timeline import draw, per_minute
from bench.scenarios.ingesting import records_file, require_completed
from bench.scenarios.million import SERIES, observed


def _samples(*documents: float, every_s: float = 10, redis_mb: float = 2) -> list[dict[str, float]]:
    return [
        {
            "seconds": number * every_s,
            "documents": done,
            "documents_mb": 100 + number,
            "documents_cpu_s": number,
            "redis_used_mb": redis_mb + (number == 1),
        }
        for number, done in enumerate(documents)
    ]


def test_speed_evenness_and_growth() -> None:
    found = observed(_samples(0, 10, 20, 30, 35, 40, 45))  # thirds of 20 s: 20, 15, 10
    assert found.values == {
        "ingest_documents_per_s": 45 / 60,
        "ingest_end_of_start": 0.5,
        "ingest_redis_used_mb": 3,
        "ingest_documents_growth_percent": pytest.approx(100 * (106 / 102 - 1)),
    }
    assert "memory of documents: at most 102 MB in the first third, 106 MB in all" in found.notes
    assert "ingestion of 45 documents, processor time of each in us: documents 133333" in found.notes
    assert figures(set(found.values))


def test_a_short_one_says_nothing_about_its_start() -> None:
    assert "ingest_end_of_start" not in observed(_samples(0, 0, 0, 45)).values


def test_samples_are_kept_with_the_results(tmp_path: Path) -> None:
    results = Results({})
    results.add("embedq", observed(_samples(0, 10, 45)))
    results.save(tmp_path / "r.json")
    assert Results.load(tmp_path / "r.json").series[SERIES] == _samples(0, 10, 45)


def test_documents_per_minute() -> None:
    minutes, rates = per_minute(_samples(*range(0, 601, 60), 630, every_s=60))
    assert (minutes, rates) == (list(range(1, 12)), [60] * 10 + [30])


def test_a_short_run_has_ten_parts() -> None:
    minutes, rates = per_minute(_samples(0, 100, every_s=20))
    assert len(minutes) == 10
    assert rates == pytest.approx([300] * 10)


def test_the_plot_names_every_line_and_its_maximum(tmp_path: Path) -> None:
    draw(_samples(0, 60, 120, 180, 210, every_s=60), tmp_path / "plot.svg")
    root = ET.fromstring((tmp_path / "plot.svg").read_text())  # noqa: S314 - our own
    shown = [element.text for element in root.iter() if element.text and element.text.strip()]
    assert "documents: at most 104" in shown
    assert "redis_used: at most 3" in shown


def test_a_line_for_each_document(tmp_path: Path) -> None:
    lines = records_file(tmp_path / "in.jsonl", ["one", "two"]).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": "d0", "text": "one"}, {"id": "d1", "text": "two"}]


@pytest.mark.parametrize("ended", [("failed", 0), ("completed", 1)])
def test_an_ingestion_with_failures_is_no_measurement(ended: tuple[str, int]) -> None:
    with pytest.raises(AssertionError):
        require_completed({"status": ended[0], "file_counts": {"failed": ended[1]}})
