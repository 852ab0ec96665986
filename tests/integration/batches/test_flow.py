"""A batch from its file to its files, through every state, with workers by hand."""

import base64
from collections.abc import Callable

import numpy as np
import orjson
import pytest

from tasks.item import TextError
from tasks.ledger.cancel import cancel
from tasks.ledger.heartbeat import watch
from tasks.ledger.read import read_result
from tasks.records.batches import Batch, BatchRecord, BatchStatus, read_batch
from tasks.records.files import Purpose, delete_file, read_file
from tasks.records.jobs import list_jobs
from tasks.records.moves import cancel_job, delete_job
from tasks.records.store import OPEN
from tasks.storage.vectors_file import VectorsReference
from tasks.wire.embedding_list import embedding_list, items
from tests.integration.api.ledger_worker import vector
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


def test_a_line_that_the_endpoint_would_refuse_fails_alone(hands: Hands) -> None:
    texts: list[str | list[str]] = ["good", "", "good", ["a", ""], "good", "good", "good"]
    lines = [request(f"{n}", text) for n, text in enumerate(texts)]
    lines[4]["body"]["dimensions"] = "8"
    batch_id = hands.create([*lines, request("token numbers", [1, "a"])])  # type: ignore[list-item]
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.errors, batch.counts) == (BatchStatus.COMPLETED, (), (8, 4, 4))
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == ["0", "2", "5", "6"]
    bad = hands.lines(batch.error_file_id)
    assert [(line["custom_id"], line["error"], line["response"]["status_code"]) for line in bad] == [
        (custom_id, None, 400) for custom_id in ("1", "3", "4", "token numbers")
    ]
    errors = [line["response"]["body"]["error"] for line in bad]
    assert {error["type"] for error in errors} == {"invalid_request_error"}
    assert [(error["code"], error["param"]) for error in errors] == [
        ("empty_input", "input[0]"),
        ("empty_input", "input[1]"),
        ("invalid_type", "dimensions"),
        ("invalid_type", "input[1]"),
    ]
    nothing_is_left(hands, batch)


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


def test_a_batch_without_any_success_is_completed_and_has_no_output(hands: Hands) -> None:
    hands.bad["bad"] = TOO_LONG
    batch_id = hands.create([request(f"{n}", "bad") for n in range(9)])
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (9, 0, 9))
    assert batch.output_file_id is None
    assert len(hands.lines(batch.error_file_id)) == 9
    hands.sweep()
    assert len(list(hands.storage.stored("anonymous"))) == 2, "the input and the errors"


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


@pytest.mark.parametrize("case", ["unknown", "foreign", "purpose"])
def test_an_input_file_that_cannot_be_used(hands: Hands, case: str) -> None:
    files: dict[str, Callable[[], str]] = {
        "unknown": lambda: "file-nobody-knows",
        "foreign": lambda: hands.upload(b"x", owner="somebody"),
        "purpose": lambda: hands.upload(b"x", purpose=Purpose.USER_DATA),
    }
    batch_id = hands.create_over(files[case]())
    hands.work()
    batch = hands.batch(batch_id)
    code = "invalid_file_purpose" if case == "purpose" else "invalid_request"
    assert batch.status is BatchStatus.FAILED
    assert [(fault.code, fault.param, fault.line) for fault in batch.errors] == [(code, "file_id", None)]
    nothing_is_left(hands, batch)


def test_cancelling_in_the_middle_keeps_what_was_done(hands: Hands) -> None:
    batch_id = half_way(hands)
    assert hands.move(cancel_job, hands.batch(batch_id))
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.CANCELLED, model=False)
    hands.work()
    batch = hands.batch(batch_id)
    assert batch.counts == (10, 4, 6)
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == ["0", "1", "2", "3"]
    left = hands.lines(batch.error_file_id)
    assert [line["custom_id"] for line in left] == ["4", "5", "6", "7", "8", "9"]
    assert {(line["response"], line["error"]["code"]) for line in left} == {(None, "batch_cancelled")}
    assert hands.work_model() == 0
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


def test_lines_that_are_gone_fail_the_batch(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.ledger.run(cancel(MODEL, f"{batch_id}-1-embed"))
    hands.storage.delete(f"anonymous/{batch_id}/")
    inputs = list(hands.storage.stored("anonymous"))
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, [fault.code for fault in batch.errors]) == (BatchStatus.FAILED, ["not_stored"])
    nothing_is_left(hands, batch)
    assert list(hands.storage.stored("anonymous")) == inputs, "nothing half-visible"


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


def test_a_batch_that_was_accepted_is_not_judged_by_what_waits(hands: Hands) -> None:
    """Nothing may wait, and the first batch does."""
    hands.driver.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    half_way(hands)
    second = hands.create([request(f"{number}", "xxxx") for number in range(3)])
    hands.until(lambda: embeds(hands, second), model=False)


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
