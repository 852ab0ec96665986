"""Bodies of batches, ingestions and searches: what is refused at once, with which code, and which field is named."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.records.ingestions import new_ingestion_id
from tests.integration.api.file_uploads import problem, upload_with
from tests.integration.api.jobs import BATCH, GOOD, create, create_batch
from tests.integration.api.served import ServedApp
from tests.made_datasets import NAME, document, load

KNOWN = "/v1/ingestions/files/known"
SEARCH = f"/v1/datasets/{NAME}/search"
ONE = [{"id": "a", "text": "x"}]
DIGEST = sha256(b"x").hexdigest()
UNSENT = {"sha256": DIGEST, "document_id": "a"}
VECTOR = {"vector": [1, 0, 0, 0]}
Wrong = list[tuple[Any, str, str]]
"""What is changed of a good body, then the code and the field of the answer."""


def static(size: Any, overlap: Any = 0, **fields: Any) -> dict[str, Any]:
    sizes = {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap}
    return {"chunking": {"type": "static", "static": sizes} | fields}


def table(**fields: Any) -> dict[str, Any]:
    return {"sink": {"type": "postgresql", "name": "store", "table": "t"} | fields}


OF_BATCHES: Wrong = [
    ({"input_file_id": None}, "missing_required_parameter", "input_file_id"),
    ({"endpoint": None}, "missing_required_parameter", "endpoint"),
    ({"completion_window": None}, "missing_required_parameter", "completion_window"),
    ({"endpoint": "/v1/chat/completions"}, "invalid_value", "endpoint"),
    ({"input_file_id": 5}, "invalid_type", "input_file_id"),
    ({"input_file_id": "f" * 600}, "invalid_value", "input_file_id"),
    *(
        ({"completion_window": window}, "invalid_value", "completion_window")
        for window in ("1d", "0h", "8760h", "-24h")
    ),
    ({"metadata": []}, "invalid_type", "metadata"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
    (
        {"output_expires_after": {"anchor": "created_at", "seconds": 60}},
        "invalid_value",
        "output_expires_after.seconds",
    ),
    ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "invalid_value", "output_expires_after.anchor"),
]
OF_SOURCES: Wrong = [
    (None, "missing_required_parameter", ""),
    ({}, "missing_required_parameter", ""),
    ({"document": ONE}, "missing_required_parameter", ""),
    ({"files": ["file-1"], "documents": ONE}, "invalid_value", ".documents"),
    ({"documents": []}, "invalid_value", ".documents"),
    ({"documents": ONE * 10_001}, "invalid_value", ".documents"),
    ({"documents": [{"text": "x"}]}, "missing_required_parameter", ".documents[0].id"),
    ({"documents": [{"id": "a", "text": ""}]}, "invalid_value", ".documents[0].text"),
    ({"documents": [{"id": "a", "text": 5}]}, "invalid_type", ".documents[0].text"),
    ({"documents": ONE, "record": False}, "unknown_parameter", ".record"),
    ({"documents": [*ONE, {"id": "b", "txt": "x"}]}, "unknown_parameter", ".documents[1].txt"),
    ({"documents": ONE, "format": "xml"}, "invalid_value", ".format"),
    ({"files": [5]}, "invalid_type", ".files[0]"),
    ({"files": [{"document_id": "a"}]}, "missing_required_parameter", ".files[0].id"),
    ({"files": [UNSENT | {"id": "file-1"}]}, "invalid_value", ".files[0].id"),
    ({"files": [UNSENT, {"sha256": DIGEST}]}, "missing_required_parameter", ".files[1].document_id"),
    ({"files": [UNSENT | {"sha256": "ab"}]}, "invalid_value", ".files[0].sha256"),
    ({"files": [UNSENT | {"sha256": "x" * 64}]}, "invalid_value", ".files[0].sha256"),
    ({"files": [UNSENT | {"metadata": {}}]}, "invalid_value", ".files[0].metadata"),
    ({"urls": ["/srv/docs/a", "/etc/passwd"]}, "source_failed", ".urls[1]"),
    ({"urls": ["/srv/docs2/a"]}, "source_failed", ".urls[0]"),
    ({"urls": ["/srv/docs/a", "/srv/docs/b/.ssh/id_rsa"]}, "source_failed", ".urls[1]"),
    ({"urls": ["file:///srv/docs/%2egit/**"]}, "source_failed", ".urls[0]"),
    ({"urls": ["/srv/docs/%2e%2e/secret"]}, "source_failed", ".urls[0]"),
]
OF_INGESTIONS: Wrong = [
    *(({"source": source}, code, f"source{param}") for source, code, param in OF_SOURCES),
    ({"chunkng": {}}, "unknown_parameter", "chunkng"),
    ({"chunking": {}}, "missing_required_parameter", "chunking.type"),
    ({"chunking": {"type": "static"}}, "missing_required_parameter", "chunking.static"),
    (static(100, type="auto"), "unknown_parameter", "chunking.static"),
    (static(2), "invalid_value", "chunking.static.max_chunk_size_tokens"),
    (static(100_000), "invalid_value", "chunking.static.max_chunk_size_tokens"),
    (static(100, 51), "invalid_value", "chunking.static.chunk_overlap_tokens"),
    ({"sink": {"type": "qdrant"}}, "invalid_value", "sink.type"),
    (table(table=None), "missing_required_parameter", "sink.table"),
    (table(table="a;b"), "invalid_value", "sink.table"),
    (table(name="x"), "invalid_value", "sink.name"),
    ({"sink": {"type": "dataset", "table": "t"}}, "unknown_parameter", "sink.table"),
    ({"sink": {"type": "dataset", "dataset": "../x"}}, "invalid_value", "sink.dataset"),
    ({"sink": {"type": "dataset", "dataset": new_ingestion_id()}}, "invalid_value", "sink.dataset"),
    ({"mode": "replace"}, "invalid_value", "mode"),
    ({"on_conflict": "ignore"}, "invalid_value", "on_conflict"),
    ({"dimensions": 100_000}, "invalid_value", "dimensions"),
    ({"prompt_name": "nothing"}, "invalid_value", "prompt_name"),
    ({"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
]
OF_SEARCHES: Wrong = [
    ({"vector": None}, "missing_required_parameter", "query"),
    ({"query": "a"}, "missing_required_parameter", "query"),
    ({"vector": None, "query": ""}, "invalid_value", "query"),
    ({"vector": None, "query": 7}, "invalid_type", "query"),
    *(({"vector": vector}, "invalid_value", "vector") for vector in ([], [1, 2, 3], [0] * 4, [1e300, 0, 0, 0])),
    ({"vector": [1] * 65_537}, "invalid_value", "vector"),
    *(({"vector": [value, 0, 0, 0]}, "invalid_type", "vector") for value in (True, "1")),
    ({"limit": 0}, "invalid_value", "limit"),
    ({"limit": 101}, "invalid_value", "limit"),
    ({"limt": 1}, "unknown_parameter", "limt"),
    ({"filter": {"a": {"b": 1}}}, "invalid_type", "filter.a"),
    ({"filter": {"a": 2**63}}, "invalid_value", "filter.a"),
    ({"filter": {f"f{n}": 1 for n in range(17)}}, "invalid_value", "filter"),
    ({"vector": None, "query": "a" * (2**20 + 1)}, "input_too_large", "query"),
    ({"vector": None, "mode": "text"}, "missing_required_parameter", "query"),
    ({"mode": "hybrid"}, "missing_required_parameter", "query"),
    ({"mode": "text", "query": "pear"}, "invalid_value", "vector"),
    ({"mode": "words", "query": "pear"}, "invalid_value", "mode"),
]


@pytest.fixture
def app(worker: object, serve: Callable[..., ServedApp]) -> ServedApp:
    sinks = "store=postgresql://me:secret-password@db/vectors"
    return serve(ingest_roots="/srv/docs,s3://bucket/in", sinks=sinks)


@pytest.mark.parametrize(
    ("path", "good", "wrong"),
    [("/v1/batches", BATCH, OF_BATCHES), ("/v1/ingestions", GOOD, OF_INGESTIONS), (KNOWN, GOOD, OF_INGESTIONS)],
)
def test_what_is_wrong_with_the_request_is_refused_at_once(
    client: httpx.Client, root: Path, path: str, good: dict[str, Any], wrong: Wrong
) -> None:
    for changed, code, param in wrong:
        answer = client.post(path, json=good | changed)
        problem(answer, 400, code, param)
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert "secret-password" not in answer.text
    assert client.get("/v1/jobs").json()["data"] == []
    assert not [each for each in root.rglob("*") if each.is_file() and "ingestions" in each.parts]


def test_what_cannot_be_searched_is_named(client: httpx.Client, root: Path) -> None:
    load(root, document("a", [1, 0, 0, 0]), owner="anonymous")
    for changed, code, param in OF_SEARCHES:
        body = {name: value for name, value in (VECTOR | changed).items() if value is not None}
        answer = client.post(SEARCH, content=json.dumps(body), headers={"content-type": "application/json"})
        problem(answer, 400, code, param)
    problem(client.post(SEARCH, json={"query": "a", "model": "nobody/knows"}), 404, "model_not_found", "model")
    assert client.post(SEARCH, json={"vector": [3e38, 3e38, 3e38, 0]}).json()["rows"] == 1


def test_errors_name_what_there_is(client: httpx.Client) -> None:
    hints: list[tuple[str, Any, str]] = [
        ("/v1/ingestions", {"source": {"documents": ONE, "record": False}}, "did you mean records?"),
        ("/v1/ingestions", {"source": {"document": ONE}}, "files, urls and documents"),
        ("/v1/ingestions", GOOD | table(name="x"), "it has: store"),
        ("/v1/batches", BATCH | {"endpoint": "/v1/responses"}, "'/v1/embeddings'"),
    ]
    for path, body, hint in hints:
        assert hint in client.post(path, json=body).json()["detail"]


def test_without_roots_no_folder_is_read(serve: Callable[..., ServedApp]) -> None:
    answer = serve().client.post("/v1/ingestions", json={"source": {"urls": ["/srv/docs"]}})
    problem(answer, 400, "source_failed", "source.urls[0]")
    assert "EMBEDQ_INGEST_ROOTS" in answer.json()["detail"]


def test_an_unknown_model_and_an_unknown_file(client: httpx.Client) -> None:
    problem(client.post("/v1/ingestions", json=GOOD | {"model": "nobody/knows"}), 404, "model_not_found", "model")
    file_id = upload_with(client)().json()["id"]
    answer = client.post("/v1/ingestions", json={"source": {"files": [file_id, "file-unknown"]}})
    problem(answer, 404, "file_not_found", "source.files[1]")
    made = create(client, source={"files": [file_id, {"id": file_id, "document_id": "b"}]})
    assert made["source"] == {"type": "files", "count": 2}


def test_what_is_accepted(client: httpx.Client) -> None:
    taken: list[dict[str, Any]] = [
        static(16, 8),
        {"chunking": {"type": "none"}, "mode": "sync", "dry_run": True},
        {"on_conflict": "replace"},
        {"on_conflict": None},
        {"metadata": {"k": "é" * 2047, "l": ""}},
        {"source": {"urls": ["/srv/docs", "file:///srv/docs/**/*.md", "s3://bucket/in/a"], "records": False}},
        {"source": {"documents": ONE, "fields": {"text": "body", "metadata": "*", "id": None}}},
        table(table="public.chunks") | {"chunking": None},
    ]
    for changed in taken:
        create(client, **changed)
    after = {"anchor": "created_at", "seconds": 3600}
    for name, value in {
        "completion_window": "1h",
        "metadata": None,
        "unknown": 1,
        "output_expires_after": after,
    }.items():
        create_batch(client, **{name: value})


def test_null_counts_as_absent_at_any_depth(client: httpx.Client) -> None:
    source = {"documents": ONE, "files": None, "urls": None, "format": None, "fields": {"id": None}}
    made = create(client, source=source, sink={"type": "dataset", "dataset": None, "table": None}, chunking=None)
    shown = made["source"]["type"], made["sink"], made["chunking"]
    assert shown == ("documents", {"type": "dataset"}, {"type": "auto"})


def test_metadata_of_any_depth_is_taken_or_refused(client: httpx.Client) -> None:
    file_id = upload_with(client)().json()["id"]
    for kind, item in (("documents", '"id":"a","text":"x"'), ("files", f'"id":"{file_id}"')):
        for depth in (1, 31, 32, 33, 34, 60, 100, 127, 128, 129, 200, 255, 256, 300):
            metadata = '{"a":' * depth + "1" + "}" * depth
            data = f'{{"source":{{"{kind}":[{{{item},"metadata":{metadata}}}]}}}}'
            answer = client.post("/v1/ingestions", content=data, headers={"content-type": "application/json"})
            if depth > 32:
                problem(answer, 400, answer.json()["error"]["code"], f"source.{kind}[0].metadata")
            else:
                assert answer.status_code == 202, answer.text
