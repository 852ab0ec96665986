"""OpenAI's own Python clients, unmodified: embeddings, models and files; curl too where an upload is refused."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import io
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.item import TextError
from tasks.ledger.overview import overview
from tests.heavy import openai
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import KEYS, MODEL, Serve, ServedApp
from tests.processes import PATIENCE_S, wait_until

LINES = b'{"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}}\n'


@pytest.fixture
def served(serve: Serve, worker: LedgerWorker) -> ServedApp:
    return serve(api_keys=KEYS, max_file_bytes=3_000_000, max_body_bytes=20_000, max_input_bytes=10_000)


@pytest.fixture
def client(served: ServedApp) -> Iterator[openai.OpenAI]:
    with connect(served) as connected:
        yield connected


def connect(served: ServedApp, path: str = "/v1", **options: Any) -> openai.OpenAI:
    named: dict[str, Any] = {"base_url": f"http://127.0.0.1:{served.port}{path}", "api_key": "key of ann"}
    return openai.OpenAI(**named | options)


def test_embeddings_by_default_travel_as_base64(client: openai.OpenAI, served: ServedApp) -> None:
    answer = client.embeddings.create(model=MODEL, input=["one", "two"])
    assert [item.index for item in answer.data] == [0, 1]
    np.testing.assert_array_equal(np.array(answer.data[1].embedding, dtype="f4"), vector("two"))
    assert (answer.model, answer.usage.total_tokens) == (MODEL, 2)
    # The client's types promise floats, whatever was asked for.
    packed: Any = client.embeddings.create(model=MODEL, input="one", encoding_format="base64").data[0].embedding
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), vector("one"))
    # Every field of the call, and extensions beside it.
    extensions = {"truncate": True, "normalize": None, "input_type": "query", "task": "x", "prefix": {"a": [1]}}
    floats = client.embeddings.create(
        model=MODEL, input=["one"], dimensions=4, encoding_format="float", user="me", extra_body=extensions
    )
    assert floats.data[0].embedding == pytest.approx(vector("one").tolist())

    raw = client.embeddings.with_raw_response.create(model=MODEL, input="one")
    assert raw.headers["x-request-id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    for of in ("requests", "tokens"):
        assert raw.headers[f"x-ratelimit-limit-{of}"] == "1500000"  # 30 s at this worker's 50,000 tokens/s
        assert 0 <= int(raw.headers[f"x-ratelimit-remaining-{of}"]) <= 1_500_000
        assert raw.headers[f"x-ratelimit-reset-{of}"].endswith("s")
    for path in ("/v1", ""):
        with connect(served, path) as there:
            assert there.embeddings.create(model=MODEL, input="one").data
            assert [model.id for model in there.models.list()] == [there.models.retrieve(MODEL).id] == [MODEL]


def test_errors_have_their_classes_fields_and_codes(
    client: openai.OpenAI, served: ServedApp, worker: LedgerWorker
) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "Not finite.")

    def embed(texts: Any, model: str = MODEL) -> Any:
        return client.embeddings.create(model=model, input=texts)

    def upload(name: str = "a.jsonl", data: bytes = LINES) -> Any:
        return client.files.create(file=(name, data), purpose="batch")

    bad, gone = openai.BadRequestError, openai.NotFoundError
    refusals: list[tuple[Callable[[], Any], type[Any], str, str | None]] = [
        (lambda: embed(["a", ""]), bad, "empty_input", "input[1]"),
        (lambda: embed(["good", "bad"]), openai.UnprocessableEntityError, "encoding_failed", "input[1]"),
        (lambda: embed("x" * 30_000), openai.APIStatusError, "body_too_large", None),
        (lambda: client.models.delete(MODEL), openai.APIStatusError, "method_not_allowed", None),
        (lambda: client.models.retrieve("nobody/knows"), gone, "model_not_found", "model"),
        (lambda: upload("a.txt"), bad, "invalid_file_format", "file"),
        (lambda: upload(data=LINES * 40_000), openai.APIStatusError, "file_too_large", "file"),
        (client.with_options(api_key="wrong").files.list, openai.AuthenticationError, "invalid_api_key", None),
        *(
            (lambda call=call: call("file-019aa8f63c5b7d1e9f002b7c4d5e6f70"), gone, "file_not_found", "id")
            for call in (client.files.retrieve, client.files.delete, client.files.content)
        ),
    ]
    for call, kind, code, param in refusals:
        before = served.series("embedq_http_errors_total", code=code)
        with pytest.raises(kind) as caught:
            call()
        assert (caught.value.code, caught.value.param) == (code, param)
        assert caught.value.request_id
        assert served.series("embedq_http_errors_total", code=code) == before + 1, "it is not repeated"


async def test_many_calls_at_once_get_their_own_vectors(served: ServedApp) -> None:
    texts = [f"text {n} {'x' * n}" for n in range(50)]
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="key of ann") as client:
        answers = await asyncio.gather(*(client.embeddings.create(model=MODEL, input=text) for text in texts))
        for text, answer in zip(texts, answers, strict=True):
            np.testing.assert_array_equal(np.array(answer.data[0].embedding, dtype="f4"), vector(text))
        assert [model.id async for model in client.models.list()] == [MODEL]


def test_the_clients_own_retry_joins_the_work(serve: Serve, idle: LedgerWorker) -> None:
    served = serve()
    with connect(served, timeout=2) as client, concurrent.futures.ThreadPoolExecutor() as pool:
        create = client.embeddings.with_raw_response.create
        call = pool.submit(create, model=MODEL, input=["slow", "work"])
        wait_until(lambda: 'status="503"' in served.client.get("/metrics").text, message="the first attempt waits")
        with idle.serving():
            raw = call.result()
        joined = f'embedq_joined_requests_total{{model="{MODEL}"}} 1.0' in served.client.get("/metrics").text
    assert (raw.status_code, raw.retries_taken) == (200, 1)
    assert joined
    assert idle.ledger.run(overview())[MODEL].counters["committed_items"] == 2


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_file(client: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(LINES)
    made = client.files.create(file=path, purpose="batch")
    assert (made.object, made.filename, made.purpose, made.bytes) == ("file", "requests.jsonl", "batch", len(LINES))
    assert made.expires_at == made.created_at + 30 * 86_400
    assert client.files.retrieve(made.id) == client.files.wait_for_processing(made.id) == made
    assert client.files.content(made.id).text == LINES.decode()
    deleted = client.files.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "file", True)

    data = bytes(range(256)) * 10_000
    for file in (data, io.BytesIO(data), ('ü "x".jsonl', data), ("a.jsonl", data, "application/jsonl")):
        made = client.files.create(file=file, purpose="user_data")
        assert made.expires_at is None
        with client.files.with_streaming_response.content(made.id) as response:
            response.stream_to_file(tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
    short = client.files.create(
        file=("a.jsonl", LINES), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert short.expires_at == short.created_at + 3600


def test_files_may_be_deleted_while_pages_are_turned(client: openai.OpenAI) -> None:
    made = [client.files.create(file=("a", b"x"), purpose="vision").id for _ in range(5)]
    client.files.create(file=("b.jsonl", LINES), purpose="batch")
    assert [file.id for file in client.files.list(limit=2, order="asc", purpose="vision")] == made
    assert len(list(client.files.list(limit=1))) == 6
    assert list(client.with_options(api_key="key of bob").files.list()) == []
    assert sum(client.files.delete(file.id).deleted for file in client.files.list(limit=2)) == 6
    assert list(client.files.list()) == []


# ---- uploads that are refused before they are read: every kind of client hears why, and no broken pipe --------------

MB = 1_000_000
LARGE = bytes(40 * MB)
"""More than all the buffers of a connection hold."""
REFUSED = [(40 * MB, 413, "file_too_large"), (25 * MB, 403, "quota_exceeded")]


@pytest.fixture
def narrow(serve: Serve) -> ServedApp:
    """It takes files of 30 MB, and keeps 20 MB of an owner."""
    return serve(api_keys=KEYS, max_file_bytes=30 * MB, file_quota_bytes=20 * MB)


def test_curl_gets_the_error(narrow: ServedApp, tmp_path: Path) -> None:
    """As curl does it by itself, where it asks before it sends a large body, and without."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    for (size_bytes, status, code), expect in product(REFUSED, (True, False)):
        (tmp_path / "a").write_bytes(LARGE[:size_bytes])
        done = subprocess.run(
            [curl, "-sS", f"http://127.0.0.1:{narrow.port}/v1/files", "-H", "authorization: Bearer key of ann"]
            + ([] if expect else ["-H", "expect:"])
            + ["-F", "purpose=user_data", "-F", f"file=@{tmp_path / 'a'}"]
            + ["-o", str(tmp_path / "answer"), "-w", "%{http_code} %{size_upload}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        answered, uploaded = done.stdout.split()
        assert (answered, done.stderr) == (str(status), "")
        assert json.loads((tmp_path / "answer").read_bytes())["error"]["code"] == code
        assert not expect or int(uploaded) < MB


def test_the_answer_comes_before_the_body(narrow: ServedApp) -> None:
    """Also where OpenAI's client sends the body of an upload, on a connection that is used again."""
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key of ann\r\n"
        b"content-type: multipart/form-data; boundary=b\r\ncontent-length: %d\r\n\r\n"
    )
    for size_bytes, status, _ in REFUSED:
        with socket.create_connection(("127.0.0.1", narrow.port), timeout=PATIENCE_S) as caller:
            caller.sendall(head % size_bytes)
            assert caller.recv(100).startswith(b"HTTP/1.1 %d" % status)
    with connect(narrow) as client:
        for size_bytes, status, code in REFUSED * 2:
            with pytest.raises(openai.APIStatusError) as refused:
                client.files.create(file=("a", LARGE[:size_bytes]), purpose="user_data")
            assert (refused.value.status_code, refused.value.code) == (status, code)
        assert list(client.files.list()) == []
