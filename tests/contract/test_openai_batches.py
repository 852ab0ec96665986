"""Files and batches through OpenAI's own Python client, with every process for real."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bulk import Bulk, line
from tests.heavy import openai
from tests.processes import RedisServer, Roles, wait_until
from worker_config.settings import DEFAULT_MODEL


@pytest.fixture(scope="module")
def bulk(start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bulk]:
    """So slow that a batch can be cancelled while it runs."""
    folder = tmp_path_factory.mktemp("bulk")
    server = start_redis(folder / "redis")
    with Roles(folder, server.url) as roles, Bulk(roles, fake_tokens_per_s=2000) as started:
        yield started
    server.stop()


def test_vectors_are_those_of_the_synchronous_call(bulk: Bulk) -> None:
    lines = [line(f"c{n}", f"text number {n} of the batch") for n in range(200)]
    lines[7] = line("c7", ["first", "second"], dimensions=5, prompt_name="query", encoding_format="float")
    batch_id = bulk.create(lines, metadata={"job": "1"})
    batch = bulk.ended(batch_id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 200, "completed": 200, "failed": 0}
    assert (batch.error_file_id, batch.metadata, batch.errors) == (None, {"job": "1"}, None)
    out = bulk.lines(batch.output_file_id)
    assert [each["custom_id"] for each in out] == [f"c{n}" for n in range(200)]
    with bulk.api.client() as http:
        for n in (0, 7, 63, 64, 199):
            assert out[n]["response"]["body"] == http.post("/v1/embeddings", json=lines[n]["body"]).json()
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(each["response"]["body"]["usage"]["total_tokens"] for each in out)
    made = bulk.client.files.retrieve(batch.output_file_id or "")
    assert (made.purpose, made.filename) == ("batch_output", f"{batch_id}_output.jsonl")


def test_a_line_that_fails_is_answered_as_the_synchronous_call_answers_it(bulk: Bulk) -> None:
    bad: list[dict[str, Any]] = [
        {"input": "word " * 300, "truncate": False},
        {"input": ""},
        {"input": "x", "dimensions": 0},
        {"input": "x", "encoding_format": "md5"},
        {"input": "x", "prompt_name": "unheard-of"},
    ]
    good, wrong = line("good", "x"), [line(f"{n}", "x", **fields) for n, fields in enumerate(bad)]
    made = [bulk.create([good, *wrong]), bulk.create(wrong[:1])]
    batch, all_failed = (bulk.ended(batch_id) for batch_id in made)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 1, len(bad))
    assert [each["custom_id"] for each in bulk.lines(batch.output_file_id)] == ["good"]
    answers = bulk.lines(batch.error_file_id)
    assert [each["custom_id"] for each in answers] == [f"{n}" for n in range(len(bad))]
    with bulk.api.client() as http:
        for each, fields in zip(answers, bad, strict=True):
            direct = http.post("/v1/embeddings", json={"model": batch.model} | fields)
            said, meant = each["response"]["body"]["error"], direct.json()["error"]
            assert (each["error"], each["response"]["status_code"]) == (None, direct.status_code)
            assert {k: said[k] for k in ("code", "param", "type")} == {k: meant[k] for k in ("code", "param", "type")}
    assert (all_failed.status, all_failed.output_file_id) == ("completed", None)
    assert len(bulk.lines(all_failed.error_file_id)) == 1


def test_a_file_with_faults_or_that_does_not_exist(bulk: Bulk) -> None:
    batch = bulk.ended(bulk.create(b'{"custom_id": "a"}\n{\n'))
    assert batch.status == "failed"
    assert batch.errors is not None
    found = [(each.code, each.line) for each in batch.errors.data or []]
    assert found == [("missing_required_parameter", 1)] * 3 + [("invalid_json_line", 2)]
    named: dict[str, Any] = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    none = bulk.client.batches.create(input_file_id="file-none", **named)
    assert none.status == "validating"
    ended = bulk.ended(none.id)
    assert ended.errors is not None
    assert [(each.code, each.param) for each in ended.errors.data or []] == [("invalid_request", "file_id")]
    pages = [each.id for each in bulk.client.batches.list(limit=1)]  # other tests have left some too
    assert pages[:2] == [none.id, batch.id]


def test_cancelling_a_running_batch(bulk: Bulk) -> None:
    count = 2000
    batch_id = bulk.create([line(f"{n}", f"text {n} of some words") for n in range(count)])

    def some() -> bool:
        counts = bulk.client.batches.retrieve(batch_id).request_counts
        return counts is not None and 0 < counts.completed < count

    wait_until(some, message="some lines done")
    assert bulk.client.batches.cancel(batch_id).status == "cancelling"
    batch = bulk.ended(batch_id)
    assert batch.status == "cancelled"
    done, left = bulk.lines(batch.output_file_id), bulk.lines(batch.error_file_id)
    assert done
    assert {each["error"]["code"] for each in left} == {"batch_cancelled"}
    assert sorted(int(each["custom_id"]) for each in done + left) == list(range(count))
    with pytest.raises(openai.NotFoundError):
        bulk.client.batches.cancel("batch_none")


def test_every_answer_has_what_openais_own_types_require(bulk: Bulk) -> None:
    """Strictly, and from the bytes: the client itself takes whatever comes."""
    types, error = openai.types, openai.types.shared.ErrorObject
    good = bulk.create([line("a", "x"), line("b", "")], metadata={"a": "b"})
    bad = bulk.create([line("a", "x"), line("a", "x")])
    files, batches = "/v1/files", "/v1/batches"
    with bulk.api.client() as http:

        def checked(kind: Any, path: str, **body: Any) -> Any:
            answer = http.post(path, json=body) if body else http.get(path)
            content = answer.content if answer.is_success else json.dumps(answer.json()["error"])
            return kind.model_validate_json(content, strict=True)

        for batch_id in (good, bad):
            checked(types.Batch, f"{batches}/{batch_id}")
            bulk.ended(batch_id)
        assert checked(types.Batch, f"{batches}/{bad}").errors.data[0].line == 2
        ended = checked(types.Batch, f"{batches}/{good}")
        for file_id in (ended.input_file_id, ended.output_file_id, ended.error_file_id):
            checked(types.FileObject, f"{files}/{file_id}")
        deleted = http.delete(f"{files}/{ended.input_file_id}").content
        assert types.FileDeleted.model_validate_json(deleted, strict=True).deleted
        for kind, path in ((types.FileObject, files), (types.Batch, batches)):
            page = http.get(path).json()
            assert page.keys() == {"object", "data", "first_id", "last_id", "has_more"}
            ids = [kind.model_validate_json(json.dumps(each), strict=True).id for each in page["data"]]
            assert (page["object"], page["first_id"], page["last_id"]) == ("list", ids[0], ids[-1])
        assert checked(types.Model, f"/v1/models/{DEFAULT_MODEL}").id == DEFAULT_MODEL
        checked(types.CreateEmbeddingResponse, "/v1/embeddings", model=DEFAULT_MODEL, input=["a", "b"])
        for path in ("/v1/nothing", f"{files}/file-none", f"{batches}/batch_none", f"{files}?limit=0"):
            assert checked(error, path).model_fields_set == {"message", "type", "param", "code"}
        assert checked(error, "/v1/embeddings", model="none", input="a").code == "model_not_found"
