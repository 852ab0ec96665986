from pathlib import Path

import pytest

from bench.quality.datasets import BadDataError, read_folder
from bench.quality.published import published


def _beir(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "1", "title": "Title", "text": "and text"}\n{"_id": "2", "title": "", "text": "no title"}\n'
    )
    (folder / "queries.jsonl").write_text(
        '{"_id": "q", "text": "asked"}\n{"_id": "r", "text": "without a judgement"}\n'
    )
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\nq\t2\t0\n")


def test_both_kinds_are_found(tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "small.csv").write_text('"One, and two",Three,4.5\nFour,Five,0\n')
    _beir(tmp_path / "beir" / "tiny")
    pairs, retrieval = read_folder(tmp_path)
    assert [(data.name, list(data.first), list(data.second)) for data in pairs] == [
        ("small", ["One, and two", "Four"], ["Three", "Five"])
    ]
    assert pairs[0].scores.tolist() == [4.5, 0]
    assert retrieval[0].documents == {"1": "Title and text", "2": "no title"}
    assert retrieval[0].queries == {"q": "asked"}
    assert retrieval[0].relevance == {"q": {"1": 1, "2": 0}}


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="neither"):
        read_folder(tmp_path)


@pytest.mark.parametrize("row", ["only one", "a,b,not a number", "a,b,1\nc,d"])
def test_a_bad_row_names_its_file(tmp_path: Path, row: str) -> None:
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "bad.csv").write_text(f"{row}\n")
    with pytest.raises(BadDataError, match=r"bad\.csv"):
        read_folder(tmp_path)


def test_a_missing_file_names_its_folder(tmp_path: Path) -> None:
    _beir(tmp_path / "beir" / "tiny")
    (tmp_path / "beir" / "tiny" / "queries.jsonl").unlink()
    with pytest.raises(BadDataError, match="tiny"):
        read_folder(tmp_path)


def test_scores_are_known_for_one_model_and_its_data() -> None:
    known = published("sentence-transformers/all-MiniLM-L6-v2", "scifact", "nDCG@10")
    assert known is not None
    assert known.score == 0.64508
    assert published("all-MiniLM-L6-v2", "scifact", "nDCG@10") == known
    assert published("another", "scifact", "nDCG@10") is None
    assert published("all-MiniLM-L6-v2", "scifact", "MAP") is None
