"""LangChain's embeddings for OpenAI, with the token numbers that it sends by default, and with texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
import tiktoken

from tests.heavy import langchain_openai
from tests.integration.api.ledger_worker import vector
from tests.integration.api.served import MODEL

TEXTS = ["one", "zwölf Boxkämpfer", "三"]


@pytest.fixture(autouse=True)
def _tokens(cl100k: tiktoken.Encoding) -> None:
    """LangChain would download them."""


@contextmanager
def embeddings(base_url: str, **options: Any) -> Iterator[langchain_openai.OpenAIEmbeddings]:
    named: dict[str, Any] = {"model": MODEL, "base_url": base_url, "api_key": "any"}
    client = langchain_openai.OpenAIEmbeddings(**named, **options)
    with closing(client.client._client):
        yield client


def expected(texts: list[str]) -> list[Any]:
    return [pytest.approx(vector(text).tolist()) for text in texts]


def test_with_its_defaults(base_url: str) -> None:
    with embeddings(base_url) as client:
        assert client.embed_documents(TEXTS) == expected(TEXTS)
        assert client.embed_query("one") == expected(["one"])[0]


async def test_asynchronously(base_url: str) -> None:
    with embeddings(base_url) as client:
        assert await client.aembed_documents(TEXTS) == expected(TEXTS)
        await client.async_client._client.close()


def test_a_text_that_langchain_cuts_in_two(base_url: str, cl100k: tiktoken.Encoding) -> None:
    text = "zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich"
    halves = cl100k.encode(text)[:12], cl100k.encode(text)[12:]
    assert 0 < len(halves[1]) < 12
    with embeddings(base_url, embedding_ctx_length=12) as client:
        (found,) = client.embed_documents([text])

    average = np.average([vector(cl100k.decode(half)) for half in halves], axis=0, weights=[len(h) for h in halves])
    np.testing.assert_allclose(found, average / np.linalg.norm(average), rtol=1e-5)


def test_documents_and_a_query_as_texts(base_url: str) -> None:
    with embeddings(base_url, check_embedding_ctx_length=False) as client:
        assert client.embed_documents(TEXTS) == expected(TEXTS)
        assert client.embed_query("one") == expected(["one"])[0]
