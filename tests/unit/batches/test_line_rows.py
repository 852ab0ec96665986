"""Lines as rows, and back."""

from collections.abc import Iterator

import numpy as np
import orjson

from tasks.batches.line_rows import Line, answered, rows_of_line
from tasks.ingestion.embedded_rows import EmbeddedRow
from tasks.item import Vector
from tasks.wire.embeddings_body import EmbeddingsBody

SIZES = [3, 1, 2_048, 1]


def done() -> Vector:
    return Vector(np.zeros(1, np.float32), 1, truncated=False)


def test_a_row_has_one_text_and_what_is_asked_of_it_and_the_first_says_whose_it_is() -> None:
    body = EmbeddingsBody(input=["a", "b"], dimensions=2, user="eve", encoding_format="base64")
    assert [orjson.loads(row) for row in rows_of_line("id", body)] == [
        {"text": "a", "options": {"dimensions": 2}, "line": ["id", True]},
        {"text": "b", "options": {"dimensions": 2}},
    ]


def test_no_more_than_one_line_is_held() -> None:
    taken = 0

    def rows() -> Iterator[EmbeddedRow]:
        nonlocal taken
        for size in SIZES:
            for row in rows_of_line(f"{size}", EmbeddingsBody(input=["x"] * size)):
                taken += 1
                yield taken - 1, row, done()

    for number, (line, outcome) in enumerate(answered(rows())):
        assert line == Line(number, f"{SIZES[number]}", base64=False)
        assert isinstance(outcome, list)
        assert len(outcome) == SIZES[number]
        assert taken <= sum(SIZES[: number + 1]) + 1
    assert taken == sum(SIZES)


def test_no_rows_are_no_lines() -> None:
    assert list(answered([])) == []
