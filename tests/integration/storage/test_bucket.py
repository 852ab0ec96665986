"""The service on a bucket: files through the API, and a whole batch through every role."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tasks.datasets.places import check_sink
from tasks.errors import Invalid, StorageUnavailable
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.files import file_id_of, stored_name
from tasks.storage.storage import Storage
from tests.bulk import Bulk, line
from tests.cloud_server import cloud_server
from tests.integration.api.file_uploads import ids, problem, upload_with
from tests.integration.api.served import ServedApp
from tests.integration.guarded.certificates import Authority
from tests.processes import Roles
from tests.s3_server import S3Server
from tests.thorough import some
from worker_config.settings import load_settings

CONTENT = bytes(range(256)) * 10_000


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"{s3.bucket()}/embedq"


def names(url: str) -> list[str]:
    """Of all files in the bucket, uploaded ones and those that batches have made."""
    return [stored.name for stored in Storage.open(url).stored(ANONYMOUS) if file_id_of(stored.name)]


def test_a_file_is_uploaded_read_and_deleted(serve: Callable[..., ServedApp], url: str) -> None:
    client = serve(storage_url=url).client
    file = upload_with(client)(CONTENT, purpose="vision").json()
    path = f"/v1/files/{file['id']}"

    assert (file["bytes"], names(url)) == (len(CONTENT), [stored_name(ANONYMOUS, file["id"])])
    assert client.get(f"{path}/content").content == CONTENT
    for wanted, part in (
        ("bytes=5-9", CONTENT[5:10]),
        ("bytes=-3", CONTENT[-3:]),
        ("bytes=1000000-", CONTENT[10**6 :]),
    ):
        answer = client.get(f"{path}/content", headers={"range": wanted})
        assert (answer.status_code, answer.content == part) == (206, True)
    beyond = client.get(f"{path}/content", headers={"range": f"bytes={len(CONTENT)}-"})
    problem(beyond, 416, "range_not_satisfiable")

    assert client.delete(path).json()["deleted"]
    assert names(url) == []
    problem(client.get(f"{path}/content"), 404, "file_not_found", "id")

    file_id = upload_with(client)().json()["id"]
    Storage.open(url).delete(stored_name(ANONYMOUS, file_id))  # by somebody else
    problem(client.get(f"/v1/files/{file_id}/content"), 404, "file_not_found", "id")
    assert client.delete(f"/v1/files/{file_id}").status_code == 200


def test_a_refused_upload_leaves_nothing(serve: Callable[..., ServedApp], url: str) -> None:
    upload = upload_with(serve(storage_url=url, max_file_bytes=1000).client)
    problem(upload(bytes(1001), purpose="vision"), 413, "file_too_large", "file")
    problem(upload(b"no JSON"), 400, "invalid_file_format", "file")
    assert names(url) == []


def test_a_bucket_that_is_not_there(serve: Callable[..., ServedApp], s3: S3Server) -> None:
    client = serve(storage_url="s3://the-bucket-that-is-not").client
    answer = upload_with(client)()
    problem(answer, 503, "storage_unavailable")
    assert "bucket" in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0
    assert ids(client.get("/v1/files")) == []


@pytest.mark.parametrize("name", some(["AWS_CA_BUNDLE", "SSL_CERT_FILE"], "SSL_CERT_FILE"))
def test_a_certificate_authority(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    authority = Authority(tmp_path, "own")
    with cloud_server(authority.server()) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        stranger = Storage.open("s3://one")
        for size_bytes in (1, 9 * 2**20):
            with pytest.raises(StorageUnavailable, match="certificate that is not trusted here"):
                stranger.write("files/a", bytes(size_bytes))
        monkeypatch.setenv(name, str(authority.file))
        storage = Storage.open("s3://one")
        storage.write("files/a", b"x")
        assert storage.read("files/a") == b"x"


def test_a_batch_on_a_bucket(roles: Roles, url: str) -> None:
    """Several API processes and both workers: each opens the bucket for itself, after it was forked."""
    with Bulk(roles, storage_url=url, api_processes=2) as bulk:
        batch = bulk.ended(bulk.create([line(f"{n}", f"text number {n}") for n in range(50)]))
        assert (batch.status, batch.errors, batch.error_file_id) == ("completed", None, None)
        assert [each["custom_id"] for each in bulk.lines(batch.output_file_id)] == [f"{n}" for n in range(50)]
        for _ in range(8):  # whichever process answers
            with httpx.Client(base_url=bulk.api.base_url) as client:
                assert client.get(f"/v1/files/{batch.output_file_id}/content").status_code == 200
        for file in list(bulk.client.files.list()):
            bulk.client.files.delete(file.id)
    assert names(url) == []


def test_a_dataset_is_not_in_a_bucket(url: str) -> None:
    settings, sink = load_settings(storage_url=url), {"type": "dataset", "dataset": "handbook"}
    with pytest.raises(Invalid, match="EMBEDQ_DATASETS"):
        check_sink(sink, settings)
    check_sink(sink, settings.model_copy(update={"datasets": "/data/datasets"}))
