"""The routes of ingestions: bodies, answers, pages, owners. What ingestions do is tested elsewhere."""

import json
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.datasets.loads import Stamp
from tasks.ingestion.skip_unchanged import fingerprint
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.records.ingestions import read_ingestion
from tasks.records.jobs import Counts, DonePage, JobError, JobStatus, Page, Wait
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import upload_with
from tests.integration.api.ingestions.requests import FAILED, GOOD, LOADED, begin, create, end
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, ServedApp
from tests.integration.records.jobs import change
from tests.link import Link
from tests.made_datasets import DIMENSION, OWNER, VECTORS, datasets_in, document
from tests.made_keys import found
from tests.processes import RedisServer


def test_a_new_ingestion_has_every_field(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    made = create(client, metadata={"job": "42"}, sink={"type": "dataset", "dataset": "handbook"})
    assert made["id"].startswith("ing_")
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        "object": "ingestion",
        "status": "queued",
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "model": "test/model",
        "source": {"type": "documents", "count": 1},
        "chunking": {"type": "auto"},
        "sink": {"type": "dataset", "dataset": "handbook"},
        "mode": "skip_unchanged",
        "dry_run": False,
        "metadata": {"job": "42"},
        "counts": {"total": 0, "completed": 0, "failed": 0},
        "file_counts": {
            "total": 0,
            "in_progress": 0,
            "completed": 0,
            "failed": 0,
            "cancelled": 0,
            "unchanged": 0,
            "deleted": 0,
            "replaced": 0,
            "emptied": 0,
            "warned": 0,
        },
        "listing_complete": False,
        "chunks": {"total": 0, "embedded": 0, "loaded": 0, "tokens": 0},
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
        "rate": None,
        "eta_s": None,
        "estimate_s": None,
        "error": None,
        "waiting_for": None,
        "waiting": {
            "code": "no_documents_worker",
            "message": "No documents worker runs.",
            "seconds": None,
            "since": None,
            "next_try": None,
        },
        "resumable": False,
        "warnings": [],
    }
    assert client.get(f"/v1/ingestions/{made['id']}").json() == made
    kept = ledger.run(read_ingestion(made["id"]))
    assert kept is not None
    assert storage.read(kept.spec["listed"]) == b'{"id":"a","text":"Some text."}\n'
    assert kept.spec["label"] == "anonymous", "the name of the key"
    assert "Some text." not in json.dumps(dict(kept.spec)), "texts do not belong into Redis"


def test_long_lists_stay_out_of_what_every_step_reads(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    file_id = upload_with(client)().json()["id"]
    files = [{"id": file_id, "document_id": f"{n}", "metadata": {"team": "sales"}} for n in range(10_000)]
    urls = [f"/srv/docs/{n}/**" for n in range(1000)]
    for kind, asked in (("files", files), ("urls", urls)):
        made = create(client, source={kind: asked})
        assert made["source"]["count"] == len(asked)
        kept = ledger.run(read_ingestion(made["id"]))
        assert kept is not None
        assert len(json.dumps(dict(kept.spec))) < 1000
        assert [json.loads(line) for line in storage.read(kept.spec["listed"]).splitlines()] == asked
    assert made["source"]["urls"] == urls[:10]


def of_source(**source: Any) -> dict[str, Any]:
    return {"source": source}


def static(size: Any, overlap: Any = 0) -> dict[str, Any]:
    return {"chunking": {"type": "static", "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap}}}


DOCUMENTS = [{"id": "a", "text": "x"}]
DIGEST = sha256(b"x").hexdigest()
UNSENT = {"sha256": DIGEST, "document_id": "a"}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("no source", {"source": None}, "missing_required_parameter", "source"),
    ("empty source", of_source(), "missing_required_parameter", "source"),
    ("two sources", of_source(files=["file-1"], documents=DOCUMENTS), "invalid_value", "source.documents"),
    ("no documents", of_source(documents=[]), "invalid_value", "source.documents"),
    ("too many", of_source(documents=DOCUMENTS * 10_001), "invalid_value", "source.documents"),
    ("no id", of_source(documents=[{"text": "x"}]), "missing_required_parameter", "source.documents[0].id"),
    ("no text", of_source(documents=[{"id": "a", "text": ""}]), "invalid_value", "source.documents[0].text"),
    ("text a number", of_source(documents=[{"id": "a", "text": 5}]), "invalid_type", "source.documents[0].text"),
    ("misspelt", {"chunkng": {}}, "unknown_parameter", "chunkng"),
    ("a source of no kind", of_source(document=DOCUMENTS), "missing_required_parameter", "source"),
    ("misspelt below", of_source(documents=DOCUMENTS, record=False), "unknown_parameter", "source.record"),
    (
        "misspelt further below",
        of_source(documents=[*DOCUMENTS, {"id": "b", "txt": "x"}]),
        "unknown_parameter",
        "source.documents[1].txt",
    ),
    ("a file of a number", of_source(files=[5]), "invalid_type", "source.files[0]"),
    ("no file", of_source(files=[{"document_id": "a"}]), "missing_required_parameter", "source.files[0].id"),
    ("two files in one", of_source(files=[UNSENT | {"id": "file-1"}]), "invalid_value", "source.files[0].id"),
    (
        "a digest of nothing",
        of_source(files=[UNSENT, {"sha256": DIGEST}]),
        "missing_required_parameter",
        "source.files[1].document_id",
    ),
    ("a short digest", of_source(files=[UNSENT | {"sha256": "ab"}]), "invalid_value", "source.files[0].sha256"),
    ("other digits", of_source(files=[UNSENT | {"sha256": "x" * 64}]), "invalid_value", "source.files[0].sha256"),
    ("metadata not hashed", of_source(files=[UNSENT | {"metadata": {}}]), "invalid_value", "source.files[0].metadata"),
    ("outside", of_source(urls=["/srv/docs/a", "/etc/passwd"]), "source_failed", "source.urls[1]"),
    ("a neighbour", of_source(urls=["/srv/docs2/a"]), "source_failed", "source.urls[0]"),
    ("hidden", of_source(urls=["/srv/docs/a", "/srv/docs/b/.ssh/id_rsa"]), "source_failed", "source.urls[1]"),
    ("hidden, by a glob", of_source(urls=["file:///srv/docs/%2egit/**"]), "source_failed", "source.urls[0]"),
    ("upwards", of_source(urls=["/srv/docs/%2e%2e/secret"]), "source_failed", "source.urls[0]"),
    ("a format", of_source(documents=DOCUMENTS, format="xml"), "invalid_value", "source.format"),
    ("no type", {"chunking": {}}, "missing_required_parameter", "chunking.type"),
    ("no static", {"chunking": {"type": "static"}}, "missing_required_parameter", "chunking.static"),
    (
        "static for auto",
        static(100) | {"chunking": static(100)["chunking"] | {"type": "auto"}},
        "unknown_parameter",
        "chunking.static",
    ),
    ("tiny chunks", static(2), "invalid_value", "chunking.static.max_chunk_size_tokens"),
    ("beyond the model", static(100_000), "invalid_value", "chunking.static.max_chunk_size_tokens"),
    ("much overlap", static(100, 51), "invalid_value", "chunking.static.chunk_overlap_tokens"),
    ("sink of no kind", {"sink": {"type": "qdrant"}}, "invalid_value", "sink.type"),
    ("no table", {"sink": {"type": "postgresql", "name": "store"}}, "missing_required_parameter", "sink.table"),
    ("bad table", {"sink": {"type": "postgresql", "name": "store", "table": "a;b"}}, "invalid_value", "sink.table"),
    ("unknown connection", {"sink": {"type": "postgresql", "name": "x", "table": "t"}}, "invalid_value", "sink.name"),
    ("a table for Parquet", {"sink": {"type": "dataset", "table": "t"}}, "unknown_parameter", "sink.table"),
    ("a dataset that is a path", {"sink": {"type": "dataset", "dataset": "../x"}}, "invalid_value", "sink.dataset"),
    ("mode", {"mode": "replace"}, "invalid_value", "mode"),
    ("on_conflict", {"on_conflict": "ignore"}, "invalid_value", "on_conflict"),
    ("dimensions", {"dimensions": 100_000}, "invalid_value", "dimensions"),
    ("prompt", {"prompt_name": "nothing"}, "invalid_value", "prompt_name"),
    ("much metadata", {"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
]


@pytest.mark.parametrize(("changed", "code", "param"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_wrong_with_the_request_is_refused_at_once(
    client: httpx.Client, root: Path, changed: dict[str, Any], code: str, param: str
) -> None:
    for path in ("/v1/ingestions", "/v1/ingestions/files/known"):
        answer = client.post(path, json=GOOD | changed)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, code, param), error
    assert "secret-password" not in answer.text
    assert client.get("/v1/ingestions").json()["data"] == []
    assert not [path for path in root.rglob("*") if path.is_file() and "ingestions" in path.parts]


def test_errors_name_what_there_is(client: httpx.Client) -> None:
    misspelt = client.post("/v1/ingestions", json=of_source(documents=DOCUMENTS, record=False)).json()["error"]
    assert "did you mean records?" in misspelt["message"]
    of_no_kind = client.post("/v1/ingestions", json=of_source(document=DOCUMENTS)).json()["error"]
    assert "files, urls and documents" in of_no_kind["message"]
    unknown = GOOD | {"sink": {"type": "postgresql", "name": "x", "table": "t"}}
    assert "it has: store" in client.post("/v1/ingestions", json=unknown).json()["error"]["message"]


def test_an_unknown_model_and_an_unknown_file(client: httpx.Client) -> None:
    answer = client.post("/v1/ingestions", json=GOOD | {"model": "nobody/knows"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    file_id = upload_with(client)().json()["id"]
    answer = client.post("/v1/ingestions", json=of_source(files=[file_id, "file-unknown"]))
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "source.files[1]")
    made = client.post("/v1/ingestions", json=of_source(files=[file_id, {"id": file_id, "document_id": "b"}]))
    assert (made.status_code, made.json()["source"]) == (202, {"type": "files", "count": 2})


@pytest.mark.parametrize(
    "changed",
    [
        static(16, 8),
        {"chunking": {"type": "none"}, "mode": "sync", "dry_run": True},
        {"on_conflict": "replace"},
        {"on_conflict": None},
        {"metadata": {"k": "é" * 2047, "l": ""}},
        of_source(urls=["/srv/docs", "file:///srv/docs/**/*.md", "s3://bucket/in/a"], records=False),
        of_source(documents=DOCUMENTS, fields={"text": "body", "metadata": "*", "id": None}),
        {"sink": {"type": "postgresql", "name": "store", "table": "public.chunks"}, "chunking": None},
    ],
)
def test_what_is_accepted(client: httpx.Client, changed: dict[str, Any]) -> None:
    create(client, **changed)


def test_metadata_of_any_depth_is_taken_or_refused(client: httpx.Client) -> None:
    for kind, items in (
        ("documents", '"id":"a","text":"x"'),
        ("files", f'"id":"{upload_with(client)().json()["id"]}"'),
    ):
        codes = []
        for depth in range(1, 301, 1 if kind == "documents" else 31):
            metadata = '{"a":' * depth + "1" + "}" * depth
            data = f'{{"source":{{"{kind}":[{{{items},"metadata":{metadata}}}]}}}}'
            answer = client.post("/v1/ingestions", content=data, headers={"content-type": "application/json"})
            assert (answer.status_code == 202) is (depth <= 32), answer.text
            codes += [] if depth <= 32 else [(answer.status_code, answer.json()["error"]["param"])]
        assert set(codes) == {(400, f"source.{kind}[0].metadata")}


def test_fields_reach_the_ledger_as_they_were_meant(client: httpx.Client, ledger: Ledger) -> None:
    fields = {"text": ["title", "body"], "metadata": "*"}
    made = create(
        client, source={"urls": ["/srv/docs/a.csv"], "fields": fields, "format": "csv"}, input_type="document"
    )
    assert made["source"] == {
        "type": "urls",
        "count": 1,
        "urls": ["/srv/docs/a.csv"],
        "fields": fields,
        "format": "csv",
    }
    kept = ledger.run(read_ingestion(made["id"]))
    assert kept is not None
    assert kept.spec["source"] == {"urls": 1, "fields": fields, "format": "csv"}
    assert kept.spec["input_type"] == "document"


def test_without_roots_no_folder_is_read(serve: Callable[..., ServedApp], root: Path) -> None:
    answer = serve(storage_url=str(root)).client.post("/v1/ingestions", json=of_source(urls=["/srv/docs"]))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "source_failed", "source.urls[0]")
    assert "EMBEDQ_INGEST_ROOTS" in error["message"]


def test_a_repetition_finds_the_same_ingestion(client: httpx.Client, storage: Storage) -> None:
    headers = {"Idempotency-Key": "k"}
    first, again = (client.post("/v1/ingestions", json=GOOD, headers=headers).json()["id"] for _ in range(2))
    assert first == again
    [stored] = [one.name for one in storage.stored("") if "ing_" in one.name]
    assert stored.endswith(f"/{first}/listed.jsonl")
    other = client.post("/v1/ingestions", json=GOOD | {"mode": "sync"}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", [b"", b"x" * 256, b"a\tb", "caf\xe9".encode("latin-1"), "\u4e2d".encode()])
def test_a_key_that_is_no_printable_ascii_is_refused(client: httpx.Client, key: bytes) -> None:
    answer = client.post("/v1/ingestions", json=GOOD, headers={b"Idempotency-Key": key})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_value")
    assert error["param"].lower() == "idempotency-key"
    assert client.get("/v1/ingestions").json()["data"] == []


def test_a_repetition_finds_its_ingestion_although_the_file_is_gone(client: httpx.Client) -> None:
    file_id, headers = upload_with(client)().json()["id"], {"Idempotency-Key": "k"}

    def send(**changed: Any) -> httpx.Response:
        return client.post("/v1/ingestions", json=of_source(files=[file_id]) | changed, headers=headers)

    first = send()
    assert client.delete(f"/v1/files/{file_id}").is_success
    again = send()
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (again.headers["location"], again.headers["retry-after"]) == (first.headers["location"], "1")
    headers["x-forwarded-prefix"] = "/emb"
    assert send().headers["location"] == "/emb" + first.headers["location"]
    assert send(mode="sync").json()["error"]["code"] == "idempotency_key_reused"
    headers["Idempotency-Key"] = "another"
    assert send().json()["error"]["code"] == "file_not_found"


def test_null_counts_as_absent_at_any_depth(client: httpx.Client) -> None:
    source = {"documents": DOCUMENTS, "files": None, "urls": None, "format": None, "fields": {"id": None}}
    made = create(client, source=source, sink={"type": "dataset", "dataset": None, "table": None}, chunking=None)
    assert (made["source"]["type"], made["sink"], made["chunking"]) == (
        "documents", {"type": "dataset"}, {"type": "auto"},
    )  # fmt: skip


def test_what_is_shown_while_it_runs_and_at_its_end(client: httpx.Client, ledger: Ledger) -> None:
    made = create(client)
    done = DonePage("", Counts(documents=9, loaded=4, unchanged=3, failed=2, chunks=40, tokens=99))
    waits = Wait(what="sink", stage="load", tries=1, until_ms=0, since_ms=0)
    begin(ledger, made["id"], Page(documents=1), done=[done], wait=waits)
    running = client.get(f"/v1/ingestions/{made['id']}").json()
    assert (running["status"], running["waiting_for"], running["finished_at"]) == ("in_progress", "sink", None)
    counts = running["file_counts"]
    assert counts == counts | {"total": 10, "completed": 7, "unchanged": 3, "failed": 2, "in_progress": 1}
    assert counts["total"] == sum(counts[name] for name in ("in_progress", "completed", "failed", "cancelled"))
    assert running["usage"]["prompt_tokens"] == 99
    end(ledger, made["id"])
    ended = client.get(f"/v1/ingestions/{made['id']}").json()
    assert ended["expires_at"] > ended["finished_at"] >= ended["started_at"] >= ended["created_at"]


def test_cancel_and_retry(client: httpx.Client, ledger: Ledger) -> None:
    path = f"/v1/ingestions/{create(client)['id']}"
    early = client.post(f"{path}/retry")
    assert (early.status_code, early.json()["error"]["code"]) == (409, "ingestion_ended")
    first = client.post(f"{path}/cancel")
    assert (first.status_code, first.json()["status"]) == (200, "cancelling")
    assert client.post(f"{path}/cancel").json() == first.json()

    other = create(client)["id"]
    end(ledger, other, counts=FAILED)
    late = client.post(f"/v1/ingestions/{other}/cancel")
    assert (late.status_code, late.headers["x-should-retry"]) == (409, "false")
    again = client.post(f"/v1/ingestions/{other}/retry")
    assert (again.status_code, again.json()["status"]) == (200, "in_progress")

    lost = create(client)["id"]
    begin(ledger, lost, Page(documents=2))
    end(ledger, lost, JobStatus.FAILED, errors=[JobError("worker_lost", "No.")])
    resumed = client.post(f"/v1/ingestions/{lost}/retry").json()
    assert (resumed["status"], resumed["error"], resumed["file_counts"]["in_progress"]) == ("in_progress", None, 2)

    clean = create(client)["id"]
    end(ledger, clean, counts=LOADED)
    assert "nothing to try again" in client.post(f"/v1/ingestions/{clean}/retry").json()["error"]["message"]


@pytest.mark.parametrize(
    ("status", "errors", "why"),
    [
        (JobStatus.FAILED, [JobError("source_failed", "No.")], "it has failed as a whole"),
        (JobStatus.CANCELLED, [], "its status is 'cancelled'"),
    ],
)
def test_one_that_ended_before_its_documents_says_why_it_is_not_tried_again(
    client: httpx.Client, ledger: Ledger, status: JobStatus, errors: list[JobError], why: str
) -> None:
    made = create(client)["id"]
    begin(ledger, made, Page(documents=1000))
    end(ledger, made, status, errors=errors)
    answer = client.post(f"/v1/ingestions/{made}/retry")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "ingestion_ended")
    assert f"{why}. Send its request again" in error["message"]


def test_only_an_ended_ingestion_is_deleted_and_then_it_is_gone(client: httpx.Client, ledger: Ledger) -> None:
    made = create(client)["id"]
    path = f"/v1/ingestions/{made}"
    early = client.delete(path)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "ingestion_not_ended")
    end(ledger, made, counts=FAILED)

    assert client.delete(path).json() == {"id": made, "object": "ingestion", "deleted": True}

    answers = [client.get(f"{path}{part}") for part in PATHS]
    answers += [client.delete(path), client.post(f"{path}/cancel"), client.post(f"{path}/retry")]
    assert {answer.json()["error"]["code"] for answer in answers} == {"ingestion_not_found"}
    for listing in ("/v1/ingestions", "/v1/jobs"):
        assert client.get(listing).json()["data"] == []


def test_a_retry_needs_room_for_what_it_stores(serve: Callable[..., ServedApp], root: Path, ledger: Ledger) -> None:
    client = serve(storage_url=str(root), file_quota_bytes=1000).client
    big, small = create(client)["id"], create(client)["id"]
    for each, kept in ((big, 900), (small, 100)):
        end(ledger, each, counts=FAILED._replace(kept=kept))
    assert client.post(f"/v1/ingestions/{small}/retry").status_code == 200, (
        "it has room for nothing more, and needs none"
    )
    job = ledger.run(read_ingestion(small))
    assert job is not None
    assert job.record.most_stored == 1000
    client.post(f"/v1/ingestions/{small}/cancel").raise_for_status()

    more = client.post("/v1/files", files={"file": ("a.txt", b"x")}, data={"purpose": "user_data"})
    assert (more.status_code, more.json()["error"]["code"]) == (403, "quota_exceeded")
    assert "hold 1,001 bytes" in more.json()["error"]["message"]
    assert change(ledger, big, lambda move: move.set(sums=move.record.sums._replace(kept=901)))
    again = client.post(f"/v1/ingestions/{big}/retry")
    assert (again.status_code, again.json()["error"]["code"]) == (403, "quota_exceeded")


def test_a_retry_whose_reply_redis_lost_was_made(
    worker: object, redis_server: RedisServer, root: Path, ledger: Ledger
) -> None:
    with Link(redis_server.endpoint.port) as link, ServedApp(link.url, storage_url=str(root)) as served:
        first, second = (create(served.client)["id"] for _ in range(2))
        for each in (first, second):
            end(ledger, each, counts=FAILED)
        served.client.post(f"/v1/ingestions/{first}/retry").raise_for_status()
        link.lose = b"retry"
        again = served.client.post(f"/v1/ingestions/{second}/retry")
    assert (again.status_code, again.json()["status"], link.lost) == (200, "in_progress", 1)


PATHS = ("", "/documents", "/output", "/output/part-000000.parquet")


@pytest.mark.parametrize("ingestion_id", ["ing_1", "ing_" + "0" * 32, "x" * 3000, "file-1"])
def test_an_unknown_ingestion_is_not_found(client: httpx.Client, ingestion_id: str) -> None:
    answers = [client.get(f"/v1/ingestions/{ingestion_id}{path}") for path in PATHS]
    answers += [client.post(f"/v1/ingestions/{ingestion_id}/{verb}") for verb in ("cancel", "retry")]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {
        (404, "ingestion_not_found")
    }


def test_pages(client: httpx.Client) -> None:
    ids = [create(client)["id"] for _ in range(3)][::-1]
    first = client.get("/v1/ingestions?limit=2").json()
    assert ([one["id"] for one in first["data"]], first["has_more"], first["last_id"]) == (ids[:2], True, ids[1])
    rest = client.get("/v1/ingestions", params={"after": ids[1]}).json()
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (ids[2:], False)
    assert client.get("/v1/ingestions?after=nothing").json()["error"]["param"] == "after"


def test_nobody_sees_an_ingestion_of_somebody_else(serve: Callable[..., ServedApp], root: Path) -> None:
    client = serve(api_keys=KEYS, storage_url=str(root)).client
    path = f"/v1/ingestions/{client.post('/v1/ingestions', json=GOOD, headers=ANN).json()['id']}"
    assert client.get(path, headers=ANN).status_code == 200
    assert {client.get(f"{path}{below}", headers=BOB).status_code for below in PATHS} == {404}
    assert {client.post(f"{path}/{verb}", headers=BOB).status_code for verb in ("cancel", "retry")} == {404}
    assert client.delete(path, headers=BOB).status_code == 404
    assert client.get("/v1/ingestions", headers=BOB).json()["data"] == []
    assert client.get("/v1/ingestions").status_code == 401
    form, file = {"purpose": "user_data"}, {"file": ("a.txt", b"text")}
    file_id = client.post("/v1/files", data=form, files=file, headers=ANN).json()["id"]
    assert client.post("/v1/ingestions", json=of_source(files=[file_id]), headers=BOB).status_code == 404


def test_what_is_known_of_files_by_their_digests(
    worker: object, serve: Callable[..., ServedApp], root: Path, ledger: Ledger
) -> None:
    client = serve(api_keys=KEYS, storage_url=str(root)).client
    model = ledger.run(overview(MODEL))[MODEL].model
    assert model
    of_text = document("a", [1.0, 0.0, 0.0, 0.0])._replace(content_hash=DIGEST)
    stamp = Stamp("ing_1", 1, fingerprint({}, model), MODEL, model.revision, DIMENSION, VECTORS)
    with closing(datasets_in(root).store(OWNER, "handbook")) as store:
        store.load([of_text, of_text._replace(id="b", place="file:///b", content_hash="0" * 64)], stamp, lambda: None)

    def known(headers: dict[str, str] = ANN, files: object = None, dataset: str = "handbook", **more: Any) -> Any:
        named = files or [{"sha256": DIGEST, "document_id": name} for name in ("a", "b", "c")]
        sink = {"type": "dataset", "dataset": dataset}
        answer = client.post(
            "/v1/ingestions/files/known", json={"source": {"files": named}, "sink": sink, **more}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    assert known() == known(mode="sync") == ["a"]
    assert known(files=["file-nobody-has", UNSENT]) == ["a"]
    assert known(mode="upsert") == known(chunking={"type": "none"}) == known(normalize=False) == []
    assert known(dataset="another") == known(BOB) == known(files=["file-1"]) == []
    assert client.post("/v1/ingestions/files/known", json=GOOD, headers=ANN).json()["data"] == []
    assert client.get("/v1/ingestions", headers=ANN).json()["data"] == []
    assert [each["name"] for each in client.get("/v1/datasets", headers=ANN).json()["data"]] == ["handbook"]


def test_an_ingestion_knows_whether_its_key_may_load_into_a_table_of_others(
    worker: object, serve: Callable[..., ServedApp], root: Path, ledger: Ledger, redis_url: str
) -> None:
    client = serve(storage_url=str(root), sinks="store=postgresql://me:pw@db/vectors").client
    ops = found(client, redis_url)
    sink = {"type": "postgresql", "name": "store", "table": "chunks"}
    for name, sinks, shares in (("a", ["store/chu*"], True), ("b", ["store"], None), ("c", None, None)):
        body = {"name": name, "limits": {"sinks": sinks}}
        key = client.post("/v1/keys", json=body, headers=ops).json()["key"]
        answer = client.post("/v1/ingestions", json=GOOD | {"sink": sink}, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 202, answer.text
        assert answer.json()["sink"] == sink
        ingestion = ledger.run(read_ingestion(answer.json()["id"]))
        assert ingestion is not None
        assert ingestion.record.shares_table is bool(shares), name


def test_too_many_open_ingestions_are_429_and_nothing_is_stored(
    worker: object, serve: Callable[..., ServedApp], root: Path, storage: Storage
) -> None:
    client = serve(storage_url=str(root), max_open_jobs=1).client
    first = create(client)
    before = sorted(stored.name for stored in storage.stored(""))
    answer = client.post("/v1/ingestions", json=GOOD)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (429, "too_many_ingestions", "rate_limit_error")
    assert answer.headers["retry-after"] == "60"
    assert "Wait for one to end, or cancel one" in error["message"]
    assert [made["id"] for made in client.get("/v1/ingestions").json()["data"]] == [first["id"]]
    assert sorted(stored.name for stored in storage.stored("")) == before


def test_a_full_redis_takes_no_new_ingestion_and_nothing_is_stored(
    private_redis: RedisServer, root: Path, storage: Storage
) -> None:
    with ServedApp(private_redis.url, storage_url=str(root)) as served:
        create(served.client)
        before = sorted(stored.name for stored in storage.stored(""))
        with private_redis.client() as connection:
            connection.config_set("maxmemory", 1)
        answer = served.client.post("/v1/ingestions", json=GOOD)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_full")
    assert sorted(stored.name for stored in storage.stored("")) == before
