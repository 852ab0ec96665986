"""The routes of ingestions, their documents and output: what is shown, repetitions, a second try. Not what they do."""

import io
import json
import sys
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tasks.datasets.loads import Stamp
from tasks.document_error import DocumentWarning
from tasks.ingestion.skip_unchanged import fingerprint
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.records.documents import Document, DocumentStatus, write_documents
from tasks.records.ingestions import Ingestion, read_ingestion
from tasks.records.jobs import Counts, DonePage, JobError, JobStatus, Page, Stage, Wait
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import Upload, pages, problem
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, Serve, ServedApp, make_key
from tests.integration.api.things import FAILED, INGESTION, LOADED, begin, end
from tests.made_datasets import DIMENSION, OWNER, VECTORS, datasets_in, document, load, random_documents
from tests.made_keys import found

DIGEST = "d" * 64
SINK = {"type": "dataset", "dataset": "handbook"}
WARNINGS = [
    DocumentWarning("pages_without_text", "2 pages have no text.", (2, 3)),
    DocumentWarning("xfa_form", "It is a form."),
]


@pytest.fixture
def app(worker: object, serve: Serve) -> ServedApp:
    return serve(ingest_roots="/srv/docs")


def kept(ledger: Ledger, ingestion_id: str) -> Ingestion:
    job = ledger.run(read_ingestion(ingestion_id))
    assert job is not None
    return job


def test_what_is_shown_while_it_runs_and_at_its_end(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    made = INGESTION.create(client, metadata={"job": "42"}, sink=SINK)
    told: dict[str, Any] = {"status": "queued", "model": "test/model", "sink": SINK, "chunking": {"type": "auto"}}
    told |= {"source": {"type": "documents", "count": 1}, "mode": "skip_unchanged", "metadata": {"job": "42"}}
    assert made == made | told
    assert client.get(f"/v1/ingestions/{made['id']}").json() == made
    spec = kept(ledger, made["id"]).spec
    assert storage.read(spec["listed"]) == b'{"id":"a","text":"Some text."}\n'
    assert "Some text." not in json.dumps(dict(spec)), "texts do not belong into Redis"

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


# ---- a second try ----------------------------------------------------------------------------------------------------


def retry(client: httpx.Client, made: str) -> httpx.Response:
    return client.post(f"/v1/ingestions/{made}/retry")


def test_retry(client: httpx.Client, ledger: Ledger) -> None:
    made, failed, lost, clean = (INGESTION.make(client) for _ in range(4))
    problem(retry(client, made), 409, "ingestion_ended")
    end(ledger, failed, counts=FAILED)
    again = retry(client, failed)
    assert (again.status_code, again.json()["status"]) == (200, "in_progress")
    begin(ledger, lost, Page(documents=2))
    end(ledger, lost, JobStatus.FAILED, errors=[JobError("worker_lost", "No.")])
    resumed = retry(client, lost).json()
    assert (resumed["status"], resumed["error"], resumed["file_counts"]["in_progress"]) == ("in_progress", None, 2)
    end(ledger, clean, counts=LOADED)
    assert "nothing to try again" in retry(client, clean).json()["detail"]

    reasons: list[tuple[JobStatus, list[JobError], str]] = [
        (JobStatus.FAILED, [JobError("source_failed", "No.")], "it has failed as a whole"),
        (JobStatus.CANCELLED, [], "its status is 'cancelled'"),
    ]
    for status, errors, why in reasons:
        made = INGESTION.make(client)
        begin(ledger, made, Page(documents=1000))
        end(ledger, made, status, errors=errors)
        assert f"{why}. Send its request again" in problem(retry(client, made), 409, "ingestion_ended")


# ---- what is known, and what a key may -------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_what_is_known_of_files_by_their_digests(serve: Serve, root: Path, ledger: Ledger) -> None:
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
    assert client.get("/v1/ingestions", headers=ANN).json()["data"] == []
    assert [each["name"] for each in client.get("/v1/datasets", headers=ANN).json()["data"]] == ["handbook"]


@pytest.mark.usefixtures("worker")
def test_an_ingestion_knows_whether_its_key_may_load_into_a_table_of_others(
    serve: Serve, ledger: Ledger, redis_url: str
) -> None:
    client = serve(sinks="store=postgresql://me:pw@db/vectors").client
    ops = found(client, redis_url)
    sink = {"type": "postgresql", "name": "store", "table": "chunks"}
    for name, sinks, shares in (("a", ["store/chu*"], True), ("b", ["store"], False), ("c", None, False)):
        client.headers.update(make_key(client, ops, name, limits={"sinks": sinks}))
        made = INGESTION.create(client, sink=sink)
        assert (made["sink"], kept(ledger, made["id"]).record.shares_table) == (sink, shares), name
    no_parts = client.get(f"/v1/ingestions/{made['id']}/output")
    assert (no_parts.status_code, "in the table chunks" in no_parts.json()["error"]["message"]) == (400, True)


# ---- documents -------------------------------------------------------------------------------------------------------


def close_pages(ledger: Ledger, storage: Storage, ingestion_id: str, closed: list[list[Document]]) -> None:
    """As the pipeline does it; the last page is still with the model."""
    folder, done = kept(ledger, ingestion_id).record.folder, []
    for number, documents in enumerate(closed, 1):
        name = f"{folder}{number}.done"
        write_documents(storage, name, documents)
        of = {s: sum(document.status == s for document in documents) for s in ("loaded", "unchanged", "failed")}
        of["warned"] = sum(bool(document.warnings) for document in documents)
        done.append(DonePage(name, Counts(documents=len(documents), **of)))
    late = f"{folder}{len(closed) + 1}.list"
    write_documents(storage, late, [Document("late", "inline:late", record=0)])
    begin(ledger, ingestion_id, Page(Stage.EMBED, src=late, documents=1, size_bytes=10), done=done)


def outcome(name: str, status: str = "loaded") -> Document:
    found = Document(name, f"inline:{name}", DocumentStatus(status), ended=status != "failed")
    if status != "failed":
        return found
    return found._replace(stage="parsing", code="corrupt_document", message="It is broken.")


STATES = {"failed": "bef", "warned": "cd", "loaded": "ac", "unchanged": "d", "in_progress": "l"}
"""The first letters of those that a filter finds."""


def test_documents_by_page_and_by_state(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    ingestion_id = INGESTION.make(client)
    closed = [
        [outcome("a"), outcome("b", "failed"), outcome("c").warned(WARNINGS)],
        [outcome("d", "unchanged").warned(WARNINGS[1:])],
        [outcome("e", "failed"), outcome("f", "failed")],
    ]
    close_pages(ledger, storage, ingestion_id, closed)
    path = f"/v1/ingestions/{ingestion_id}/documents"

    def names(**query: Any) -> str:
        return "".join(each["id"][0] for page in pages(client, path, **query) for each in page)

    for limit in (1, 2, 3, 4, 7):
        assert names(limit=limit) == "abcdefl"
        for state, expected in STATES.items():
            assert names(limit=limit, filter=state) == expected
    scanned, form = client.get(path, params={"filter": "warned"}).json()["data"]
    assert scanned["warnings"] == [
        {"code": "pages_without_text", "message": "2 pages have no text.", "pages": [2, 3]},
        {"code": "xfa_form", "message": "It is a form.", "pages": []},
    ]
    assert (form["status"], form["warnings"]) == ("unchanged", scanned["warnings"][1:])
    error = {"code": "corrupt_document", "message": "It is broken."}
    failed = client.get(path, params={"filter": "failed", "limit": 1}).json()["data"][0]
    assert failed == failed | {"id": "b", "source_uri": "inline:b", "stage": "parsing", "last_error": error}
    groups = client.get(f"{path}/groups").json()
    broken = {"object": "ingestion.document_group", "code": "corrupt_document", "message": "It is broken."}
    assert groups["complete"] is True
    assert groups["data"] == [{**broken, "count": 3, "retryable": False, "names": ["b", "e", "f"]}]
    warned = client.get(f"{path}/groups", params={"filter": "warned"}).json()["data"]
    assert {one["code"]: one["names"] for one in warned} == {"pages_without_text": ["c"], "xfa_form": ["c", "d"]}
    for name, value in (("filter", "lost"), ("after", "x"), ("after", "1-x"), ("limit", "0")):
        problem(client.get(path, params={name: value}), 400, "invalid_value", name)
    many = INGESTION.make(client)
    close_pages(ledger, storage, many, [[outcome(f"{n}")] for n in range(45)])
    answers = pages(client, f"/v1/ingestions/{many}/documents", limit=100)
    assert [each["id"] for page in answers for each in page] == [*map(str, range(45)), "late"]
    assert len(answers) == 3, "an answer does not read the whole of a large one"


# ---- the output ------------------------------------------------------------------------------------------------------


def test_the_parts_of_the_output(
    client: httpx.Client, ledger: Ledger, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = INGESTION.create(client, sink=SINK)
    path, owner = f"/v1/ingestions/{made['id']}/output", kept(ledger, made["id"]).owner
    nothing = client.get(path).json()
    assert (nothing["data"], nothing["rows"], nothing["version"], nothing["dimension"]) == ([], 0, 0, None)

    load(root, *random_documents(3, 2), owner=owner)
    listed = client.get(path).json()
    assert (listed["rows"], listed["dimension"], listed["version"]) == (6, 4, 1)
    (shown,) = listed["data"]
    assert shown["rows"] == 6
    whole, again = client.get(shown["url"]), client.get(shown["url"])
    rows = pq.read_table(io.BytesIO(whole.content)).to_pylist()
    assert [(row["doc_id"], row["chunk_index"]) for row in rows] == [*product(("d0000", "d0001", "d0002"), (0, 1))]
    assert whole.headers["etag"] == again.headers["etag"]
    assert int(whole.headers["content-length"]) == len(whole.content)

    (root / ".incoming").rename(root / ".aside")  # as an unmounted disk looks
    for url in (path, shown["url"]):
        problem(client.get(url), 503, "storage_unavailable")
    (root / ".aside").rename(root / ".incoming")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tasks.datasets.export", None)
        answer = client.get(shown["url"])
    assert (answer.status_code, answer.json()["error"]["param"]) == (503, "pyarrow")
    assert 'pip install "embedq[parquet]"' in answer.json()["detail"]

    load(root, document("new", [1, 2, 3, 4]), owner=owner)
    problem(client.get(shown["url"]), 410, "part_changed")
    assert [part["rows"] for part in client.get(path).json()["data"]] == [7]
    assert client.get(f"{path}/nothing").json()["error"]["code"] == "file_not_found"
    assert datasets_in(root).delete(owner, "handbook")
    assert client.get(shown["url"]).json()["error"]["code"] == "file_not_found"
    assert client.get(path).json()["data"] == []
