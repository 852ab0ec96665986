"""A batch from its file to its files, through every state, with workers by hand."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from tasks.item import TextError
from tasks.ledger.heartbeat import watch
from tasks.ledger.read import read_result, read_task
from tasks.records.batches import Batch, BatchRecord, BatchStatus, read_batch
from tasks.records.files import delete_file, read_file
from tasks.records.jobs import list_jobs
from tasks.records.moves import cancel_job, delete_job
from tasks.records.store import OPEN
from tasks.storage.vectors_file import VectorsReference
from tasks.wire.embedding_list import embedding_list, items
from tests.integration.api.ledger_worker import DIMENSION, vector
from tests.integration.batches.hands import HOUR_MS, MODEL, Hands, half_way, nothing_is_left, request

TOO_LONG = TextError("input_too_long", "This text has 9 tokens; the model takes at most 8.")


def test_every_line_is_answered_in_order(hands: Hands) -> None:
    lines = [request(f"id {n}", f"text number {n}") for n in range(11)]
    lines[3] = request("id 3", ["a", "long b"], encoding_format="base64", dimensions=2)
    batch_id = hands.create(b"\xef\xbb\xbf" + b"\r\n\r\n".join(orjson.dumps(line) for line in lines) + b"\r\n")
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.model, batch.errors) == (BatchStatus.COMPLETED, MODEL, ())
    assert (batch.counts, batch.tokens) == ((11, 11, 0), 12)
    assert batch.error_file_id is None
    assert list(batch.times) == [BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.COMPLETED]
    out = hands.lines(batch.output_file_id)
    assert [line["custom_id"] for line in out] == [f"id {n}" for n in range(11)]
    assert len({line["id"] for line in out}) == 11
    for n, line in enumerate(out):
        assert (set(line), line["error"], line["response"]["status_code"]) == (
            {"id", "custom_id", "response", "error"},
            None,
            200,
        )
        if n != 3:
            expected = embedding_list(items(vector(f"text number {n}")[None], base64=False), model=MODEL, tokens=1)
            assert line["response"]["body"] == orjson.loads(expected)
    first, second = out[3]["response"]["body"]["data"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(first["embedding"]), "<f4"), vector("a")[:2])
    assert (first.get("truncated"), second["index"]) == (None, 1)
    nothing_is_left(hands, batch)


def test_rows_that_fail_go_into_the_error_file(hands: Hands) -> None:
    hands.bad["bad"] = TOO_LONG
    batch_id = hands.create([request(f"{n}", "bad" if n % 3 == 1 else "good") for n in range(10)])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.FINALIZING)
    assert hands.batch(batch_id).counts == (10, 7, 3), "its files are put together only now"
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (10, 7, 3))
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == ["0", "2", "3", "5", "6", "8", "9"]
    bad = hands.lines(batch.error_file_id)
    assert [line["custom_id"] for line in bad] == ["1", "4", "7"]
    error = {"message": f"input[0]: {TOO_LONG.message}", "type": "invalid_request_error", "param": "input[0]"}
    error["code"] = "input_too_long"
    assert [(line["response"]["status_code"], line["response"]["body"], line["error"]) for line in bad] == [
        (400, {"error": error}, None)
    ] * 3


def test_a_line_may_hold_token_numbers(hands: Hands) -> None:
    lines = [request("one", "I", dimensions=2.0, user="U"), request("several", "S", embedding_type="base64")]
    data = b"\n".join(orjson.dumps(line) for line in lines)
    deep = b"[" * 300 + b"]" * 300  # more than orjson writes
    data = data.replace(b'"I"', b"[606]").replace(b'"S"', b"[[606],[20375]]").replace(b'"U"', deep)
    batch_id = hands.create(data)
    hands.work()
    one, several = [line["response"]["body"]["data"] for line in hands.lines(hands.batch(batch_id).output_file_id)]
    assert [item["embedding"] for item in one] == [vector("one")[:2].tolist()]
    found = [base64.b64decode(item["embedding"]) for item in several]
    assert found == [vector(text).tobytes() for text in ("one", "two")]


def test_a_bad_file_fails_with_all_its_faults(hands: Hands) -> None:
    good = orjson.dumps(request("a", "x"))
    batch_id = hands.create(b"\n".join([b"{", good, b"[]", b"", good]))
    hands.work()
    batch = hands.batch(batch_id)
    assert batch.status is BatchStatus.FAILED
    assert [(fault.code, fault.line) for fault in batch.errors] == [
        ("invalid_json_line", 1),
        ("invalid_request", 3),
        ("duplicate_custom_id", 5),
    ]
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    nothing_is_left(hands, batch)


def test_the_window_ends_in_the_middle(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.ledger.clock_offset_ms = 24 * HOUR_MS
    hands.ledger.run(watch(MODEL))
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.EXPIRED)
    batch = hands.batch(batch_id)
    assert batch.counts == (10, 4, 6)
    left = hands.lines(batch.error_file_id)
    message = "This request could not be executed before the completion window expired. Send it again."
    assert [line["error"] for line in left] == [{"code": "batch_expired", "message": message}] * 6
    hands.step()
    nothing_is_left(hands, hands.batch(batch_id))


def test_an_input_file_deleted_on_the_way_is_answered_all_the_same(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.storage.delete(f"anonymous/{hands.batch(batch_id).input_file_id}")
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (10, 10, 0))
    assert len(hands.lines(batch.output_file_id)) == 10
    nothing_is_left(hands, batch)


def test_a_model_exchanged_in_the_middle_encodes_every_row_anew(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.serve_revision("r2")
    made_by: list[str] = []
    for _ in range(20):
        hands.step()
        hands.work_documents()
        committed = hands.ledger.run(read_result(f"{batch_id}-1-embed"))
        if committed is not None and committed.task.state.terminal:
            made_by = [VectorsReference.from_json(piece.data).revision for piece in committed.pieces]
        hands.work_model(limit=1)
    assert made_by == ["r2"] * 3
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (10, 10, 0))
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == [f"{n}" for n in range(10)]
    nothing_is_left(hands, batch)


def test_a_batch_that_is_deleted_leaves_its_files_and_nothing_else(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x"), request("b", "y")])
    hands.bad["y"] = TOO_LONG
    hands.until(lambda: hands.batch(batch_id).status.terminal)
    ended = hands.batch(batch_id)
    assert hands.move(delete_job, ended)
    hands.driver.move_on(ended)  # of a worker that has not heard of the deletion
    assert hands.batch(batch_id).deleted
    assert not hands.move(delete_job, hands.batch(batch_id)), "it is deleted already"

    hands.step()
    hands.sweep()
    hands.step()

    assert hands.ledger.run(read_batch(batch_id)) is None
    assert len(list(hands.storage.stored(f"anonymous/{batch_id}"))) == 2
    assert hands.ledger.run(list_jobs(BatchRecord, OPEN, limit=10))[0] == []
    assert [line["custom_id"] for line in hands.lines(ended.output_file_id)] == ["a"]
    assert [line["custom_id"] for line in hands.lines(ended.error_file_id)] == ["b"]


def test_only_the_requests_that_failed_are_tried_again(hands: Hands) -> None:
    lines = [request(f"id {n}", f"text {n}") for n in range(6)]
    hands.bad = {"text 1": TOO_LONG, "text 4": TOO_LONG}
    first = hands.batch(hands.create(b"\n\n".join(orjson.dumps(line) for line in lines)))
    hands.work()
    first = hands.batch(first.id)
    assert first.counts == (6, 4, 2)
    hands.bad = {"text 4": TOO_LONG}

    again = hands.create_over(first.input_file_id, only_file_id=first.error_file_id)
    hands.work()

    second = hands.batch(again)
    assert second.counts == (2, 1, 1)
    [line] = hands.lines(second.output_file_id)
    assert line["custom_id"] == "id 1"
    assert line["response"]["body"]["data"][0]["embedding"] == pytest.approx(vector("text 1").tolist())
    assert [line["custom_id"] for line in hands.lines(second.error_file_id)] == ["id 4"]
    nothing_is_left(hands, second)


ROWS = 10


def embedded(batch: Batch) -> bool:
    """Whether all of it is, and nobody has seen that."""
    task = batch.tasks.get(f"{batch.id}-1-embed")
    return task is not None and task.state.terminal


@pytest.mark.parametrize("damaged", [None, b"\0", b"\xff", b"\x02"], ids=["gone", "zeros", "ones", "twos"])
def test_a_part_that_is_gone_or_damaged_costs_its_own_rows(hands: Hands, damaged: bytes | None) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    hands.until(lambda: embedded(hands.batch(batch_id)))
    parts = sorted(found.name for found in hands.storage.stored(f"anonymous/{batch_id}") if "/vectors." in found.name)
    assert len(parts) == 3
    size = len(hands.storage.read(parts[0]))
    hands.storage.delete(parts[0])
    if damaged is not None:
        hands.storage.write(parts[0], damaged * size)
    hands.work()
    batch = hands.batch(batch_id)
    done, lost = hands.lines(batch.output_file_id), hands.lines(batch.error_file_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (ROWS, len(done), len(lost)))
    assert sorted(int(line["custom_id"]) for line in done + lost) == list(range(ROWS))
    assert 0 < len(lost) <= 4
    assert {(line["response"], line["error"]["code"]) for line in lost} == {(None, "batch_part_lost")}
    nothing_is_left(hands, batch)


def embeds(hands: Hands, batch_id: str) -> bool:
    """Whether its rows are in the queue of the model."""
    return f"{batch_id}-1-embed" in hands.batch(batch_id).tasks


def test_an_output_file_that_its_owner_deleted_does_not_come_back(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.FINALIZING)
    assert hands.work_documents() == 1
    assembled = hands.batch(batch_id)
    hands.step()
    output = hands.batch(batch_id).output_file_id
    assert output is not None
    hands.ledger.run(delete_file(output))
    hands.driver.move_on(assembled)
    assert hands.ledger.run(read_file(output)) is None
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED
    hands.work()
    nothing_is_left(hands, hands.batch(batch_id))


def test_rows_of_an_accepted_batch_are_let_in_by_a_full_redis(hands: Hands) -> None:
    """They are references of a few bytes; who waits for the batch was told long ago that it is accepted."""
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    redis = hands.ledger.client
    limit = redis.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis.config_set("maxmemory", 1_000_000)
    hands.step()
    redis.config_set("maxmemory", limit)
    assert embeds(hands, batch_id)


def test_a_round_goes_over_all_open_jobs(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingestion.driver._AT_ONCE", 2)
    made = [hands.create([request("1", "text")]) for _ in range(5)]
    hands.step()
    assert {str(hands.batch(batch_id).record.status) for batch_id in made} == {"in_progress"}


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


def two_pieces_done(hands: Hands, texts: Sequence[int]) -> str:
    """A batch with lines of so many texts, of which two units are done: 8 texts."""
    batch_id = hands.create([request(f"{n}", [f"{n} {i}" for i in range(size)]) for n, size in enumerate(texts)])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.IN_PROGRESS, model=False)
    assert hands.work_model(limit=2) == 2
    return batch_id


def test_cancelling_in_the_middle_of_a_line_keeps_the_lines_that_are_whole(hands: Hands) -> None:
    batch_id = two_pieces_done(hands, [3, 4, 4, 1])
    assert hands.move(cancel_job, hands.batch(batch_id))
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.CANCELLED, model=False)
    batch = ended(hands, batch_id)
    assert batch.counts == (4, 2, 2)
    assert done_of(hands, batch) == ["0", "1"]
    assert {name: error[:2] for name, error in errors_of(hands, batch).items()} == dict.fromkeys(
        ("2", "3"), (None, "batch_cancelled")
    )
