"""Hugging Face's own client on TEI's routes; LangChain's and Haystack's embeddings for OpenAI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import tiktoken
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.heavy import haystack, haystack_embedders, haystack_utils, langchain_openai
from tests.integration.api.ledger_worker import approximately, vector
from tests.integration.api.served import MODEL

TEXTS = ["one", "zwölf Boxkämpfer", "三"]


async def test_hugging_face(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Developers switch the hub off in their environment, and with it goes every address.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    url = base_url.removesuffix("/v1")
    for path in ("", "/", "/embed"):
        client = InferenceClient(f"{url}{path}")
        one, several = client.feature_extraction("one"), client.feature_extraction(["one", "two"])
        assert one.dtype == several.dtype == np.float32
        np.testing.assert_array_equal(one, [vector("one")])
        np.testing.assert_array_equal(several, [vector("one"), vector("two")])
    found = InferenceClient(url, token="any").feature_extraction(
        "one", normalize=True, prompt_name="query", truncate=True, truncation_direction="right", dimensions=4
    )
    assert found.shape == (1, 4)
    async with AsyncInferenceClient(url) as asynchronous:
        np.testing.assert_array_equal(await asynchronous.feature_extraction("one"), [vector("one")])
    with pytest.raises(HfHubHTTPError, match="prompt_name") as caught:
        InferenceClient(url).feature_extraction("one", prompt_name="nope")
    assert caught.value.response.status_code == 422
    huggingface_hub.close_session()  # one for the whole process


@contextmanager
def langchain(base_url: str, **options: Any) -> Iterator[langchain_openai.OpenAIEmbeddings]:
    named: dict[str, Any] = {"model": MODEL, "base_url": base_url, "api_key": "any"}
    client = langchain_openai.OpenAIEmbeddings(**named, **options)
    with closing(client.client._client):
        yield client


async def test_langchain_with_token_numbers_and_with_texts(base_url: str, cl100k: tiktoken.Encoding) -> None:
    for options in ({}, {"check_embedding_ctx_length": False}):  # token numbers are its default; it would download them
        with langchain(base_url, **options) as client:
            assert client.embed_documents(TEXTS) == await client.aembed_documents(TEXTS) == approximately(*TEXTS)
            assert [client.embed_query("one")] == approximately("one")
            await client.async_client._client.close()
    text = "zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich"
    halves = cl100k.encode(text)[:12], cl100k.encode(text)[12:]
    assert 0 < len(halves[1]) < 12
    with langchain(base_url, embedding_ctx_length=12) as client:
        (found,) = client.embed_documents([text])
    average = np.average([vector(cl100k.decode(half)) for half in halves], axis=0, weights=[len(h) for h in halves])
    np.testing.assert_allclose(found, average / np.linalg.norm(average), rtol=1e-5)


def test_haystack(base_url: str) -> None:
    options: dict[str, Any] = {"model": MODEL, "api_base_url": base_url}
    options["api_key"] = haystack_utils.Secret.from_token("any")
    several = haystack_embedders.OpenAIDocumentEmbedder(
        batch_size=4, progress_bar=False, raise_on_failure=True, **options
    )
    texts = [f"document {n} {'x' * n}" for n in range(10)]
    with closing(several):
        found = several.run(documents=[haystack.Document(content=text) for text in texts])
    assert [document.embedding for document in found["documents"]] == approximately(*texts)
    assert found["meta"]["model"] == MODEL
    assert found["meta"]["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    with closing(haystack_embedders.OpenAITextEmbedder(**options)) as one:
        assert [one.run(text="one")["embedding"]] == approximately("one")
