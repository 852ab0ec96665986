"""Reads the data sets of a folder: `sts/*.csv`, and `beir/*/` in BEIR's own layout."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class BadDataError(Exception):
    """The folder does not hold what it should. The message names the file."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sentences and how similar people found them."""

    name: str
    first: Sequence[str]
    second: Sequence[str]
    scores: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Documents, queries, and which documents answer which query: query id -> document id -> relevance.

    `corpus` is the file that the documents are from: JSON lines with `_id`, `title` and `text`.
    """

    name: str
    corpus: Path
    documents: dict[str, str]
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]


def read_folder(folder: Path) -> tuple[list[Pairs], list[Retrieval]]:
    """Everything in the folder.

    Raises:
        BadDataError: there is nothing, or something is malformed.
    """
    pairs = [read_pairs(file) for file in sorted(folder.glob("sts/*.csv"))]
    retrieval = [read_retrieval(file.parent) for file in sorted(folder.glob("beir/*/corpus.jsonl"))]
    if not pairs and not retrieval:
        raise BadDataError(f"{folder} holds neither sts/*.csv nor beir/*/corpus.jsonl")
    return pairs, retrieval


def read_pairs(file: Path) -> Pairs:
    """A CSV without header: sentence, sentence, score.

    Raises:
        BadDataError: a row is not of this kind.
    """
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    try:
        first, second, scores = zip(*rows, strict=True)
        return Pairs(file.stem, first, second, np.array([float(score) for score in scores]))
    except ValueError as error:
        raise BadDataError(f"{file} must have rows of sentence,sentence,score: {error}") from None


def read_retrieval(folder: Path) -> Retrieval:
    """A folder with `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`; queries without a judgement are left out.

    Raises:
        BadDataError: a file is missing or malformed.
    """
    try:
        relevance: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, document, grade = line.split("\t")
            relevance.setdefault(query, {})[document] = int(grade)
        documents = {row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in _rows(folder, "corpus")}
        queries = {row["_id"]: row["text"] for row in _rows(folder, "queries") if row["_id"] in relevance}
    except (OSError, KeyError, ValueError) as error:
        raise BadDataError(f"{folder} is no BEIR data set: {error}") from None
    return Retrieval(folder.name, folder / "corpus.jsonl", documents, queries, relevance)


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
