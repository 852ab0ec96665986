"""Lines of several texts: each text is worked on by itself, and a line has one answer."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from tasks.item import TextError
from tasks.ledger.read import read_task
from tasks.records.batches import Batch, BatchStatus
from tasks.records.moves import cancel_job
from tests.integration.api.ledger_worker import DIMENSION, vector
from tests.integration.batches.hands import Hands, nothing_is_left, request

TOO_LONG = TextError("input_too_long", "This text has 9 tokens; the model takes at most 8.")
MOST = 300
SIZES = {"one": 1, "two": 2, "many": MOST, "three": 3, "another one": 1}


def texts_of(name: str) -> list[str]:
    return [f"{name} {n}" for n in range(SIZES[name])]


def of_all_sizes(hands: Hands) -> str:
    return hands.create([request(name, texts_of(name)) for name in SIZES])


def vectors_of(line: dict[str, Any]) -> list[Any]:
    data = line["response"]["body"]["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [item["embedding"] for item in data]


def texts_done(hands: Hands, batch_id: str) -> int:
    task = hands.ledger.run(read_task(f"{batch_id}-1-embed"))
    assert task is not None
    return task.completed


def errors_of(hands: Hands, batch: Batch) -> dict[str, tuple[int | None, str, str | None, str]]:
    """Of the lines in the error file: status, code, param and message; no status of what was never executed."""
    found = {}
    for line in hands.lines(batch.error_file_id):
        answer = line["response"]
        error = answer["body"]["error"] if answer else line["error"]
        status = answer["status_code"] if answer else None
        found[line["custom_id"]] = (status, error["code"], error.get("param"), error["message"])
    return found


def done_of(hands: Hands, batch: Batch) -> list[str]:
    return [line["custom_id"] for line in hands.lines(batch.output_file_id)]


def ended(hands: Hands, batch_id: str) -> Batch:
    hands.work()
    batch = hands.batch(batch_id)
    nothing_is_left(hands, batch)
    return batch


def test_each_line_has_all_its_vectors_in_order(hands: Hands) -> None:
    batch_id = of_all_sizes(hands)
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.FINALIZING)
    assert texts_done(hands, batch_id) == sum(SIZES.values())
    batch = ended(hands, batch_id)
    assert batch.counts == (len(SIZES), len(SIZES), 0)
    assert batch.tokens == sum(SIZES.values())
    lines = hands.lines(batch.output_file_id)
    assert [line["custom_id"] for line in lines] == list(SIZES)
    for line in lines:
        texts = texts_of(line["custom_id"])
        assert line["response"]["body"]["usage"] == {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        np.testing.assert_array_equal(np.array(vectors_of(line), "<f4"), np.stack([vector(text) for text in texts]))


def test_each_line_has_its_own_options(hands: Hands) -> None:
    lines = [
        request("short", ["a", "long b", "c"], dimensions=2, encoding_format="base64", user="eve"),
        request("plain", ["d", "e"], text=7, options="of somebody else"),
        request("other words", ["f", "g"], output_dimension=3, embedding_type="base64", normalize=True),
    ]
    data = b"\n".join(orjson.dumps(line | {"texts": 5, "line": ["x"], "refused": ["y"]}) for line in lines)
    numbers = orjson.dumps(request("numbers", "N", dimensions=2.0)).replace(b'"N"', b"[[606],[20375]]")
    batch = ended(hands, hands.create(data + b"\n" + numbers))
    short, plain, other, numbered = hands.lines(batch.output_file_id)
    for line, texts, dimension in ((short, ["a", "long b", "c"], 2), (other, ["f", "g"], 3)):
        assert [base64.b64decode(found) for found in vectors_of(line)] == [
            vector(t)[:dimension].tobytes() for t in texts
        ]
    assert [item.get("truncated") for item in short["response"]["body"]["data"]] == [None, True, None]
    for line, texts, dimension in ((plain, ["d", "e"], DIMENSION), (numbered, ["one", "two"], 2)):
        expected = [vector(text)[:dimension] for text in texts]
        np.testing.assert_array_equal(np.array(vectors_of(line), "<f4"), np.stack(expected))


@pytest.mark.parametrize("at", [0, MOST - 1])
def test_one_bad_text_fails_its_line_and_is_named(hands: Hands, at: int) -> None:
    hands.bad = {f"many {at}": TOO_LONG, "three 1": TextError("encoding_failed", "No."), "three 2": TOO_LONG}
    batch = ended(hands, of_all_sizes(hands))
    assert batch.counts == (5, 3, 2)
    assert done_of(hands, batch) == ["one", "two", "another one"]
    assert batch.tokens == 1 + 2 + 1
    assert errors_of(hands, batch) == {
        "many": (400, "input_too_long", f"input[{at}]", f"input[{at}]: {TOO_LONG.message}"),
        "three": (422, "encoding_failed", "input[1]", "input[1]: No."),
    }


def test_a_text_that_kills_fails_its_own_line_alone(hands: Hands) -> None:
    hands.deadly.add("three 1")
    batch_id = of_all_sizes(hands)
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.FINALIZING)
    assert texts_done(hands, batch_id) == sum(SIZES.values()) - 1, "its neighbours in the line complete"
    batch = ended(hands, batch_id)
    assert done_of(hands, batch) == ["one", "two", "many", "another one"]
    [(status, code, param, message)] = errors_of(hands, batch).values()
    assert (status, code, param) == (422, "worker_lost", "input[1]")
    assert message.startswith("input[1]: The worker died or failed")


def half_way(hands: Hands, texts: Sequence[int]) -> str:
    """A batch with lines of so many texts, of which two units are done: 8 texts."""
    batch_id = hands.create([request(f"{n}", [f"{n} {i}" for i in range(size)]) for n, size in enumerate(texts)])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.IN_PROGRESS, model=False)
    assert hands.work_model(limit=2) == 2
    return batch_id


def test_cancelling_in_the_middle_of_a_line_keeps_the_lines_that_are_whole(hands: Hands) -> None:
    batch_id = half_way(hands, [3, 4, 4, 1])
    assert hands.move(cancel_job, hands.batch(batch_id))
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.CANCELLED, model=False)
    batch = ended(hands, batch_id)
    assert batch.counts == (4, 2, 2)
    assert done_of(hands, batch) == ["0", "1"]
    assert {name: error[:2] for name, error in errors_of(hands, batch).items()} == dict.fromkeys(
        ("2", "3"), (None, "batch_cancelled")
    )


def test_while_it_runs_requests_are_counted_by_the_part_of_the_texts_that_is_done(hands: Hands) -> None:
    hands.bad["0 0"] = TOO_LONG
    batch_id = half_way(hands, [14, 1, 1])
    running = hands.batch(batch_id)
    assert running.counts == (3, 3 * 7 // 16, 0)
    batch = ended(hands, batch_id)
    assert batch.counts == (3, 2, 1)
