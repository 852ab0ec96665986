"""The routes of ingestions: what is shown, repetitions, and a second try. What ingestions do is tested elsewhere."""

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
from tasks.records.ingestions import Ingestion, read_ingestion
from tasks.records.jobs import Counts, DonePage, JobError, JobStatus, Page, Wait
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import Upload, problem
from tests.integration.api.jobs import FAILED, GOOD, LOADED, begin, create, end
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, ServedApp, make_key
from tests.integration.records.jobs import change
from tests.link import Link
from tests.made_datasets import DIMENSION, OWNER, VECTORS, datasets_in, document
from tests.made_keys import found
from tests.processes import RedisServer

ABSENT = ("started_at", "finished_at", "expires_at", "rate", "eta_s", "estimate_s", "error", "waiting_for")
FILE_COUNTS = "total in_progress completed failed cancelled unchanged deleted replaced emptied warned"
DIGEST = sha256(b"x").hexdigest()


@pytest.fixture
def app(worker: object, serve: Callable[..., ServedApp]) -> ServedApp:
    return serve(ingest_roots="/srv/docs")


def kept(ledger: Ledger, ingestion_id: str) -> Ingestion:
    job = ledger.run(read_ingestion(ingestion_id))
    assert job is not None
    return job


def test_a_new_ingestion_has_every_field(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    made = create(client, metadata={"job": "42"}, sink={"type": "dataset", "dataset": "handbook"})
    assert made["id"].startswith("ing_")
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        **dict.fromkeys(ABSENT),
        "object": "ingestion",
        "status": "queued",
        "model": "test/model",
        "source": {"type": "documents", "count": 1},
        "chunking": {"type": "auto"},
        "sink": {"type": "dataset", "dataset": "handbook"},
        "mode": "skip_unchanged",
        "dry_run": False,
        "metadata": {"job": "42"},
        "counts": {"total": 0, "completed": 0, "failed": 0},
        "file_counts": dict.fromkeys(FILE_COUNTS.split(), 0),
        "listing_complete": False,
        "chunks": {"total": 0, "embedded": 0, "loaded": 0, "tokens": 0},
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
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
    spec = kept(ledger, made["id"]).spec
    assert storage.read(spec["listed"]) == b'{"id":"a","text":"Some text."}\n'
    assert spec["label"] == "anonymous", "the name of the key"
    assert "Some text." not in json.dumps(dict(spec)), "texts do not belong into Redis"


def test_long_lists_stay_out_of_what_every_step_reads(
    client: httpx.Client, ledger: Ledger, storage: Storage, upload: Upload
) -> None:
    file_id = upload().json()["id"]
    files = [{"id": file_id, "document_id": f"{n}", "metadata": {"team": "sales"}} for n in range(2000)]
    urls = [f"/srv/docs/{n}/**" for n in range(1000)]
    for kind, asked in (("files", files), ("urls", urls)):
        made = create(client, source={kind: asked})
        assert made["source"]["count"] == len(asked)
        spec = kept(ledger, made["id"]).spec
        assert len(json.dumps(dict(spec))) < 1000
        assert [json.loads(line) for line in storage.read(spec["listed"]).splitlines()] == asked
    assert made["source"]["urls"] == urls[:10]


def test_fields_reach_the_ledger_as_they_were_meant(client: httpx.Client, ledger: Ledger) -> None:
    fields = {"text": ["title", "body"], "metadata": "*"}
    source = {"urls": ["/srv/docs/a.csv"], "fields": fields, "format": "csv"}
    made = create(client, source=source, input_type="document")
    assert made["source"] == source | {"type": "urls", "count": 1}
    spec = kept(ledger, made["id"]).spec
    assert (spec["source"], spec["input_type"]) == ({"urls": 1, "fields": fields, "format": "csv"}, "document")


def test_a_repetition_finds_its_ingestion_although_the_file_is_gone(client: httpx.Client, upload: Upload) -> None:
    file_id, headers = upload().json()["id"], {"Idempotency-Key": "k"}

    def send(**changed: Any) -> httpx.Response:
        return client.post("/v1/ingestions", json={"source": {"files": [file_id]}} | changed, headers=headers)

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


def test_retry(client: httpx.Client, ledger: Ledger) -> None:
    def retry(made: str) -> httpx.Response:
        return client.post(f"/v1/ingestions/{made}/retry")

    made, failed, lost, clean = (create(client)["id"] for _ in range(4))
    problem(retry(made), 409, "ingestion_ended")
    end(ledger, failed, counts=FAILED)
    again = retry(failed)
    assert (again.status_code, again.json()["status"]) == (200, "in_progress")
    begin(ledger, lost, Page(documents=2))
    end(ledger, lost, JobStatus.FAILED, errors=[JobError("worker_lost", "No.")])
    resumed = retry(lost).json()
    assert (resumed["status"], resumed["error"], resumed["file_counts"]["in_progress"]) == ("in_progress", None, 2)
    end(ledger, clean, counts=LOADED)
    assert "nothing to try again" in retry(clean).json()["detail"]

    reasons: list[tuple[JobStatus, list[JobError], str]] = [
        (JobStatus.FAILED, [JobError("source_failed", "No.")], "it has failed as a whole"),
        (JobStatus.CANCELLED, [], "its status is 'cancelled'"),
    ]
    for status, errors, why in reasons:
        made = create(client)["id"]
        begin(ledger, made, Page(documents=1000))
        end(ledger, made, status, errors=errors)
        problem(retry(made), 409, "ingestion_ended")
        assert f"{why}. Send its request again" in retry(made).json()["detail"]


def test_a_retry_needs_room_for_what_it_stores(serve: Callable[..., ServedApp], ledger: Ledger) -> None:
    client = serve(file_quota_bytes=1000).client
    big, small = create(client)["id"], create(client)["id"]
    for each, size in ((big, 900), (small, 100)):
        end(ledger, each, counts=FAILED._replace(kept=size))
    # It has room for nothing more, and needs none.
    client.post(f"/v1/ingestions/{small}/retry").raise_for_status()
    assert kept(ledger, small).record.most_stored == 1000
    client.post(f"/v1/ingestions/{small}/cancel").raise_for_status()

    more = client.post("/v1/files", files={"file": ("a.txt", b"x")}, data={"purpose": "user_data"})
    problem(more, 403, "quota_exceeded")
    assert "hold 1,001 bytes" in more.json()["detail"]
    assert change(ledger, big, lambda move: move.set(sums=move.record.sums._replace(kept=901)))
    problem(client.post(f"/v1/ingestions/{big}/retry"), 403, "quota_exceeded")


@pytest.mark.usefixtures("worker")
def test_a_retry_whose_reply_redis_lost_was_made(redis_server: RedisServer, root: Path, ledger: Ledger) -> None:
    with Link(redis_server.endpoint.port) as link, ServedApp(link.url, storage_url=str(root)) as served:
        first, second = (create(served.client)["id"] for _ in range(2))
        for each in (first, second):
            end(ledger, each, counts=FAILED)
        served.client.post(f"/v1/ingestions/{first}/retry").raise_for_status()
        link.lose = b"retry"
        again = served.client.post(f"/v1/ingestions/{second}/retry")
    assert (again.status_code, again.json()["status"], link.lost) == (200, "in_progress", 1)


@pytest.mark.usefixtures("worker")
def test_what_is_known_of_files_by_their_digests(serve: Callable[..., ServedApp], root: Path, ledger: Ledger) -> None:
    client = serve(api_keys=KEYS).client
    model = ledger.run(overview(MODEL))[MODEL].model
    assert model
    of_text = document("a", [1.0, 0.0, 0.0, 0.0])._replace(content_hash=DIGEST)
    stamp = Stamp("ing_1", 1, fingerprint({}, model), MODEL, model.revision, DIMENSION, VECTORS)
    with closing(datasets_in(root).store(OWNER, "handbook")) as store:
        store.load([of_text, of_text._replace(id="b", place="file:///b", content_hash="0" * 64)], stamp, lambda: None)

    def known(headers: dict[str, str] = ANN, files: object = None, dataset: str = "handbook", **more: Any) -> Any:
        named = files or [{"sha256": DIGEST, "document_id": name} for name in ("a", "b", "c")]
        sink = {"type": "dataset", "dataset": dataset}
        body = {"source": {"files": named}, "sink": sink, **more}
        answer = client.post("/v1/ingestions/files/known", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    assert known() == known(mode="sync") == ["a"]
    assert known(files=["file-nobody-has", {"sha256": DIGEST, "document_id": "a"}]) == ["a"]
    assert known(mode="upsert") == known(chunking={"type": "none"}) == known(normalize=False) == []
    assert known(dataset="another") == known(BOB) == known(files=["file-1"]) == []
    assert client.post("/v1/ingestions/files/known", json=GOOD, headers=ANN).json()["data"] == []
    assert client.get("/v1/ingestions", headers=ANN).json()["data"] == []
    assert [each["name"] for each in client.get("/v1/datasets", headers=ANN).json()["data"]] == ["handbook"]


@pytest.mark.usefixtures("worker")
def test_an_ingestion_knows_whether_its_key_may_load_into_a_table_of_others(
    serve: Callable[..., ServedApp], ledger: Ledger, redis_url: str
) -> None:
    client = serve(sinks="store=postgresql://me:pw@db/vectors").client
    ops = found(client, redis_url)
    sink = {"type": "postgresql", "name": "store", "table": "chunks"}
    for name, sinks, shares in (("a", ["store/chu*"], True), ("b", ["store"], False), ("c", None, False)):
        client.headers.update(make_key(client, ops, name, limits={"sinks": sinks}))
        made = create(client, sink=sink)
        assert (made["sink"], kept(ledger, made["id"]).record.shares_table) == (sink, shares), name
