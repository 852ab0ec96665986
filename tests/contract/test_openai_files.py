"""Files through OpenAI's own Python client, unmodified."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.heavy import openai
from tests.integration.api.served import KEYS, ServedApp

LINES = b'{"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}}\n'


@pytest.fixture
def base_url(serve: Callable[..., ServedApp], tmp_path: Path) -> str:
    """Without /v1, which is there for those who have it."""
    settings = {"api_keys": KEYS, "max_file_bytes": 3_000_000}
    return f"http://127.0.0.1:{serve(storage_url=str(tmp_path / 'storage'), **settings).port}"


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="key of ann") as connected:
        yield connected


@pytest.fixture
async def async_client(base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="key of ann") as connected:
        yield connected


def test_the_life_of_a_file(client: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(LINES)
    made = client.files.create(file=path, purpose="batch")

    assert (made.object, made.filename, made.purpose, made.bytes) == ("file", "requests.jsonl", "batch", len(LINES))
    assert made.expires_at == made.created_at + 30 * 86_400
    assert client.files.retrieve(made.id) == made
    assert client.files.wait_for_processing(made.id) == made
    assert client.files.content(made.id).read() == LINES
    assert client.files.content(made.id).text == LINES.decode()
    deleted = client.files.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "file", True)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)


def test_every_form_of_a_file(client: openai.OpenAI) -> None:
    forms = [LINES, io.BytesIO(LINES), ('ü "x".jsonl', LINES), ("a.jsonl", LINES, "application/jsonl")]
    for file in forms:
        made = client.files.create(file=file, purpose="user_data")  # type: ignore[arg-type]
        assert made.expires_at is None
        assert client.files.content(made.id).read() == LINES
    raw = client.files.with_raw_response.create(
        file=("a.jsonl", LINES), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (raw.status_code, raw.parse().filename) == (200, "a.jsonl")
    assert raw.headers["x-request-id"]
    assert raw.parse().expires_at == raw.parse().created_at + 3600


def test_content_is_streamed_to_a_file(client: openai.OpenAI, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    made = client.files.create(file=("a.bin", data), purpose="user_data")

    with client.files.with_streaming_response.content(made.id) as response:
        response.stream_to_file(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_all_pages_are_turned(client: openai.OpenAI) -> None:
    made = [client.files.create(file=("a", b"x"), purpose="vision").id for _ in range(5)]
    client.files.create(file=("b.jsonl", LINES), purpose="batch")

    assert [file.id for file in client.files.list(limit=2, order="asc", purpose="vision")] == made
    assert len(list(client.files.list(limit=1))) == 6
    assert client.files.list().has_more is False


def test_files_may_be_deleted_while_pages_are_turned(client: openai.OpenAI) -> None:
    for _ in range(5):
        client.files.create(file=("a", b"x"), purpose="vision")

    assert list(client.with_options(api_key="key of bob").files.list()) == []
    assert sum(client.files.delete(file.id).deleted for file in client.files.list(limit=2)) == 5
    assert list(client.files.list()) == []


def test_errors_have_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as empty:
        client.files.create(file=("a.jsonl", b""), purpose="batch")
    assert (empty.value.code, empty.value.param) == ("invalid_file_format", "file")
    with pytest.raises(openai.BadRequestError, match=r"Must be \.jsonl"):
        client.files.create(file=("a.txt", LINES), purpose="batch")
    with pytest.raises(openai.BadRequestError) as purpose:
        client.files.create(file=("a.jsonl", LINES), purpose="nonsense")  # type: ignore[arg-type]
    assert purpose.value.param == "purpose"
    with pytest.raises(openai.APIStatusError) as large:
        client.files.create(file=("a.jsonl", LINES * (4_000_000 // len(LINES))), purpose="batch")
    assert (large.value.status_code, large.value.code) == (413, "file_too_large")
    for call in (client.files.retrieve, client.files.delete, client.files.content):
        with pytest.raises(openai.NotFoundError) as unknown:
            call("file-019aa8f63c5b7d1e9f002b7c4d5e6f70")
        assert unknown.value.request_id
    with pytest.raises(openai.BadRequestError):
        client.files.list(limit=-1)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").files.list()


async def test_the_life_of_a_file_asynchronously(async_client: openai.AsyncOpenAI) -> None:
    made = [await async_client.files.create(file=("a.jsonl", LINES), purpose="batch") for _ in range(3)]

    assert [file.id async for file in async_client.files.list(limit=1)] == [file.id for file in made[::-1]]
    assert (await async_client.files.retrieve(made[0].id)) == made[0]
    assert (await async_client.files.content(made[0].id)).content == LINES
    assert (await async_client.files.delete(made[0].id)).deleted
    with pytest.raises(openai.NotFoundError):
        await async_client.files.content(made[0].id)
