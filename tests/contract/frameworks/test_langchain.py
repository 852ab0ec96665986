"""LangChain's embeddings for OpenAI, with texts, and with the token numbers that it sends unless told not to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import tiktoken

from api.request.token_input import ENCODING
from tests.heavy import langchain_openai, openai
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import MODEL, ServedApp

TEXTS = ["one", "zwölf Boxkämpfer", "三"]


@pytest.fixture
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one in the place of the real one, which would have to be downloaded; for both sides."""
    small = tiktoken.Encoding(
        name=ENCODING,
        pat_str=r"\w+|\W+",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, ENCODING, small)


@pytest.fixture
def decoding_url(redis_url: str, worker: LedgerWorker, vocabulary: None) -> Iterator[str]:
    with ServedApp(redis_url, token_inputs="tiktoken") as served:
        yield f"http://127.0.0.1:{served.port}/v1"


@contextmanager
def embeddings(base_url: str, **options: Any) -> Iterator[langchain_openai.OpenAIEmbeddings]:
    named: dict[str, Any] = {"model": MODEL, "base_url": base_url, "api_key": "any"}
    client = langchain_openai.OpenAIEmbeddings(**named, **options)
    with closing(client.client._client):
        yield client


def expected(texts: list[str]) -> list[Any]:
    return [pytest.approx(vector(text).tolist()) for text in texts]


def test_documents_and_a_query_as_texts(base_url: str) -> None:
    with embeddings(base_url, check_embedding_ctx_length=False) as client:
        assert client.embed_documents(TEXTS) == expected(TEXTS)
        assert client.embed_query("one") == expected(["one"])[0]


async def test_asynchronously(base_url: str) -> None:
    with embeddings(base_url, check_embedding_ctx_length=False) as client:
        assert await client.aembed_documents(TEXTS) == expected(TEXTS)
        await client.async_client._client.close()


def test_token_numbers_are_refused_with_the_way_out(base_url: str, vocabulary: None) -> None:
    with (
        embeddings(base_url) as client,
        pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"),
    ):
        client.embed_documents(TEXTS)


def test_token_numbers_are_decoded_where_there_is_a_vocabulary(decoding_url: str) -> None:
    with embeddings(decoding_url) as client:
        assert client.embed_documents(TEXTS) == expected(TEXTS)
        assert client.embed_query("one") == expected(["one"])[0]


def test_a_text_that_langchain_cuts_in_two(decoding_url: str) -> None:
    text = "ab" * 10
    with embeddings(decoding_url, embedding_ctx_length=12) as client:
        (found,) = client.embed_documents([text])

    halves = np.average([vector(text[:12]), vector(text[12:])], axis=0, weights=[12, 8])
    np.testing.assert_allclose(found, halves / np.linalg.norm(halves), rtol=1e-5)
