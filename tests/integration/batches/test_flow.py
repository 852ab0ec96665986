"""A batch from its file to its files, through every state, with workers by hand."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tasks.item import TextError
from tasks.ledger import task
from tasks.ledger.client import Ledger
from tasks.ledger.read import read_result
from tasks.records.batches import Batch, BatchRecord, BatchStatus, read_batch
from tasks.records.files import delete_file, read_file
from tasks.records.jobs import list_jobs
from tasks.records.moves import cancel_job, delete_job
from tasks.records.store import OPEN
from tasks.storage.vectors_file import VectorsReference
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import MODEL, Hands, request

TOO_LONG = TextError("input_too_long", "This text has 9 tokens; the model takes at most 8.")
ROWS, MOST = 10, 300
SIZES = {"one": 1, "two": 2, "many": MOST, "three": 3, "another one": 1}


@pytest.fixture
def hands(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    monkeypatch.setattr(task, "PIECE_TEXTS", 4)
    ledger = Ledger.connect(redis_url)
    yield Hands(ledger, tmp_path / "storage")
    ledger.close()


def nothing_is_left(hands: Hands, batch: Batch) -> None:
    """Fails when an ended batch has left a task, an object, or work for a step."""
    assert batch.pages == {}
    assert list(hands.ledger.client.scan_iter("eq:task:*")) == []
    hands.sweep()
    left = {stored.name for stored in hands.storage.stored(f"{batch.owner}/{batch.id}")}
    files = [hands.ledger.run(read_file(file_id)) for file_id in batch.record.files.values()]
    assert left == {file.stored for file in files if file}
    assert hands.ledger.run(list_jobs(BatchRecord, OPEN, limit=10))[0] == []


def ended(hands: Hands, batch_id: str) -> Batch:
    hands.work()
    batch = hands.batch(batch_id)
    nothing_is_left(hands, batch)
    return batch


def half_way(hands: Hands) -> str:
    """A batch of 10 rows of which the first piece, 4 rows, is done."""
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.IN_PROGRESS, model=False)
    assert hands.work_model(limit=1) == 1
    return batch_id


def of_all_sizes() -> list[dict[str, Any]]:
    return [request(name, [f"{name} {n}" for n in range(size)]) for name, size in SIZES.items()]


def names_of(hands: Hands, file_id: str | None) -> list[str]:
    return [line["custom_id"] for line in hands.lines(file_id)]


def vectors_of(line: dict[str, Any]) -> list[Any]:
    data = line["response"]["body"]["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [item["embedding"] for item in data]


def errors_of(hands: Hands, batch: Batch) -> dict[str, tuple[int | None, str, str | None, str]]:
    """Of the lines in the error file: status, code, param and message; no status of what was never executed."""
    found = {}
    for line in hands.lines(batch.error_file_id):
        answer = line["response"]
        error = answer["body"]["error"] if answer else line["error"]
        status = answer["status_code"] if answer else None
        found[line["custom_id"]] = (status, error["code"], error.get("param"), error["message"])
    return found


def test_each_line_has_all_its_vectors_in_order(hands: Hands) -> None:
    data = b"\r\n\r\n".join(orjson.dumps(line) for line in of_all_sizes())
    batch = ended(hands, hands.create(b"\xef\xbb\xbf" + data + b"\r\n"))
    assert (batch.status, batch.model, batch.errors) == (BatchStatus.COMPLETED, MODEL, ())
    assert (batch.counts, batch.tokens) == ((len(SIZES), len(SIZES), 0), sum(SIZES.values()))
    assert list(batch.times) == [BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.COMPLETED]
    assert batch.error_file_id is None
    lines = hands.lines(batch.output_file_id)
    assert [line["custom_id"] for line in lines] == list(SIZES)
    assert len({line["id"] for line in lines}) == len(SIZES)
    for line in lines:
        name, number = line["custom_id"], SIZES[line["custom_id"]]
        assert (set(line), line["error"]) == ({"id", "custom_id", "response", "error"}, None)
        assert line["response"]["body"]["usage"] == {"prompt_tokens": number, "total_tokens": number}
        right = np.stack([vector(f"{name} {n}") for n in range(number)])
        np.testing.assert_array_equal(np.array(vectors_of(line), "<f4"), right)


def test_a_line_may_hold_token_numbers(hands: Hands) -> None:
    lines = [request("one", "I", dimensions=2.0, user="U"), request("several", "S", embedding_type="base64")]
    data = b"\n".join(orjson.dumps(line) for line in lines)
    deep = b"[" * 300 + b"]" * 300  # more than orjson writes
    data = data.replace(b'"I"', b"[606]").replace(b'"S"', b"[[606],[20375]]").replace(b'"U"', deep)
    one, several = hands.lines(ended(hands, hands.create(data)).output_file_id)
    assert vectors_of(one) == [vector("one")[:2].tolist()]
    assert [base64.b64decode(found) for found in vectors_of(several)] == [vector(t).tobytes() for t in ("one", "two")]


@pytest.mark.parametrize("at", [0, MOST - 1])
def test_one_bad_text_fails_its_line_and_is_named(hands: Hands, at: int) -> None:
    hands.bad = {f"many {at}": TOO_LONG, "three 1": TextError("encoding_failed", "No."), "three 2": TOO_LONG}
    first = ended(hands, hands.create(of_all_sizes()))
    assert (first.counts, first.tokens) == ((5, 3, 2), 1 + 2 + 1)
    assert names_of(hands, first.output_file_id) == ["one", "two", "another one"]
    assert errors_of(hands, first) == {
        "many": (400, "input_too_long", f"input[{at}]", f"input[{at}]: {TOO_LONG.message}"),
        "three": (422, "encoding_failed", "input[1]", "input[1]: No."),
    }

    del hands.bad[f"many {at}"]
    again = ended(hands, hands.create_over(first.input_file_id, only_file_id=first.error_file_id))
    assert again.counts == (2, 1, 1)
    assert names_of(hands, again.output_file_id) == ["many"]
    assert names_of(hands, again.error_file_id) == ["three"]


def test_cancelling_in_the_middle_of_a_line_keeps_the_lines_that_are_whole(hands: Hands) -> None:
    lines = [request(f"{n}", [f"{n} {i}" for i in range(size)]) for n, size in enumerate([3, 4, 4, 1])]
    batch_id = hands.create(lines)
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.IN_PROGRESS, model=False)
    assert hands.work_model(limit=2) == 2  # 8 texts
    assert hands.move(cancel_job, hands.batch(batch_id))
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.CANCELLED, model=False)
    batch = ended(hands, batch_id)
    assert batch.counts == (4, 2, 2)
    assert names_of(hands, batch.output_file_id) == ["0", "1"]
    left = {name: error[:2] for name, error in errors_of(hands, batch).items()}
    assert left == dict.fromkeys(("2", "3"), (None, "batch_cancelled"))


def test_an_input_file_deleted_on_the_way_is_answered_all_the_same(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.storage.delete(f"anonymous/{hands.batch(batch_id).input_file_id}")
    batch = ended(hands, batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (ROWS, ROWS, 0))


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
    batch = ended(hands, batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (ROWS, ROWS, 0))
    assert names_of(hands, batch.output_file_id) == [f"{n}" for n in range(ROWS)]


def test_a_batch_that_is_deleted_leaves_its_files_and_nothing_else(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x"), request("b", "y")])
    hands.bad["y"] = TOO_LONG
    hands.until(lambda: hands.batch(batch_id).status.terminal)
    batch = hands.batch(batch_id)
    assert hands.move(delete_job, batch)
    hands.driver.move_on(batch)  # of a worker that has not heard of the deletion
    assert hands.batch(batch_id).deleted
    assert not hands.move(delete_job, hands.batch(batch_id)), "it is deleted already"

    hands.step()
    hands.sweep()
    hands.step()

    assert hands.ledger.run(read_batch(batch_id)) is None
    assert len(list(hands.storage.stored(f"anonymous/{batch_id}"))) == 2
    assert hands.ledger.run(list_jobs(BatchRecord, OPEN, limit=10))[0] == []
    assert [names_of(hands, batch.output_file_id), names_of(hands, batch.error_file_id)] == [["a"], ["b"]]


@pytest.mark.parametrize("damaged", [None, b"\0", b"\xff", b"\x02"], ids=["gone", "zeros", "ones", "twos"])
def test_a_part_that_is_gone_or_damaged_costs_its_own_rows(hands: Hands, damaged: bytes | None) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])

    def embedded() -> bool:
        embed = hands.batch(batch_id).tasks.get(f"{batch_id}-1-embed")
        return embed is not None and embed.state.terminal

    hands.until(embedded)
    parts = sorted(found.name for found in hands.storage.stored(f"anonymous/{batch_id}") if "/vectors." in found.name)
    assert len(parts) == 3
    size = len(hands.storage.read(parts[0]))
    hands.storage.delete(parts[0])
    if damaged is not None:
        hands.storage.write(parts[0], damaged * size)
    batch = ended(hands, batch_id)
    done, lost = names_of(hands, batch.output_file_id), errors_of(hands, batch)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (ROWS, len(done), len(lost)))
    assert sorted(int(name) for name in [*done, *lost]) == list(range(ROWS))
    assert 0 < len(lost) <= 4
    assert {error[:2] for error in lost.values()} == {(None, "batch_part_lost")}


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
    assert ended(hands, batch_id).status is BatchStatus.COMPLETED


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
    assert f"{batch_id}-1-embed" in hands.batch(batch_id).tasks
