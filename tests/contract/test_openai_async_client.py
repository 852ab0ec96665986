"""The web tier through OpenAI's own asynchronous Python client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from tests.heavy import openai
from tests.integration.api.ledger_worker import vector
from tests.integration.api.served import MODEL


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="any") as connected:
        yield connected


async def test_many_calls_at_once_get_their_own_vectors(client: openai.AsyncOpenAI) -> None:
    texts = [f"text {n} {'x' * n}" for n in range(50)]

    answers = await asyncio.gather(*(client.embeddings.create(model=MODEL, input=text) for text in texts))

    for text, answer in zip(texts, answers, strict=True):
        np.testing.assert_array_equal(np.array(answer.data[0].embedding, dtype="f4"), vector(text))


async def test_floats_models_and_errors(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float")
    assert [item.embedding for item in answer.data] == [pytest.approx(vector(text).tolist()) for text in ("one", "two")]
    assert [model.id async for model in client.models.list()] == [MODEL]
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody/knows")
    with pytest.raises(openai.BadRequestError) as caught:
        await client.embeddings.create(model=MODEL, input=["a", ""])
    assert (caught.value.code, caught.value.param) == ("empty_input", "input[1]")
