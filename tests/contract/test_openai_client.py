"""The web tier through OpenAI's own Python client."""

from __future__ import annotations

import base64
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tasks.item import TextError
from tasks.ledger.overview import overview
from tests.heavy import openai
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import KEYS, MODEL, ServedApp
from tests.processes import wait_until


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="any") as connected:
        yield connected


def connect(served: ServedApp, path: str = "/v1", **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}{path}", **{"api_key": "any"} | options)


def test_embeddings_by_default_travel_as_base64(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=["one", "two"])

    assert [item.index for item in answer.data] == [0, 1]
    np.testing.assert_array_equal(np.array(answer.data[1].embedding, dtype="f4"), vector("two"))
    assert (answer.model, answer.usage.total_tokens) == (MODEL, 2)
    floats = client.embeddings.create(model=MODEL, input="one", encoding_format="float").data[0].embedding
    # The client's types promise floats, whatever was asked for.
    packed: Any = client.embeddings.create(model=MODEL, input="one", encoding_format="base64").data[0].embedding

    assert floats == pytest.approx(vector("one").tolist())
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), vector("one"))


def test_models_and_addresses(client: openai.OpenAI, serve: Callable[..., ServedApp]) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(model="nobody/knows", input="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as caught:
        client.models.delete(MODEL)
    assert (caught.value.status_code, caught.value.code) == (405, "method_not_allowed")
    with connect(serve(), "") as without:  # /v1
        assert without.embeddings.create(model=MODEL, input="one").data
        assert without.models.retrieve(MODEL).id == MODEL


def test_a_bad_request_is_told_field_and_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=MODEL, input=["a", ""])

    assert (caught.value.code, caught.value.param) == ("empty_input", "input[1]")
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_an_input_that_cannot_be_encoded_is_not_retried(client: openai.OpenAI, worker: LedgerWorker) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "Not finite.")
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.embeddings.create(model=MODEL, input=["good", "bad"])

    assert (caught.value.code, caught.value.param) == ("encoding_failed", "input[1]")


def test_what_the_raw_response_tells(client: openai.OpenAI) -> None:
    raw = client.embeddings.with_raw_response.create(model=MODEL, input="one")

    np.testing.assert_array_equal(np.array(raw.parse().data[0].embedding, dtype="f4"), vector("one"))
    assert raw.headers["x-request-id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    for of in ("requests", "tokens"):
        assert raw.headers[f"x-ratelimit-limit-{of}"] == "1500000"  # 30 s at this worker's 50,000 tokens/s
        assert 0 <= int(raw.headers[f"x-ratelimit-remaining-{of}"]) <= 1_500_000
        assert raw.headers[f"x-ratelimit-reset-{of}"].endswith("s")


def test_every_field_of_the_call_and_extensions_beside_it(client: openai.OpenAI) -> None:
    extensions = {"truncate": True, "normalize": None, "input_type": "query", "task": "x", "prefix": {"a": [1]}}
    answer = client.embeddings.create(
        model=MODEL, input=["one"], dimensions=4, encoding_format="float", user="me", extra_body=extensions
    )

    assert len(answer.data[0].embedding) == 4


def test_token_numbers_are_the_texts_that_they_stand_for(client: openai.OpenAI) -> None:
    of_text = client.embeddings.create(model=MODEL, input="hello world").data[0].embedding

    for numbers in ([15339, 1917], [[15339, 1917]]):
        answer = client.embeddings.create(model=MODEL, input=numbers)
        assert [item.embedding for item in answer.data] == [of_text]


@pytest.mark.usefixtures("worker")
def test_keys_and_limits(serve: Callable[..., ServedApp]) -> None:
    served = serve(api_keys=KEYS, max_body_bytes=2000, max_input_bytes=1000)
    with connect(served, api_key="key of ann") as known:
        assert known.embeddings.create(model=MODEL, input="a").data
        with pytest.raises(openai.APIStatusError) as large:
            known.embeddings.create(model=MODEL, input="x" * 3000)
    assert (large.value.status_code, large.value.code) == (413, "body_too_large")
    with connect(served, api_key="wrong") as unknown, pytest.raises(openai.AuthenticationError) as caught:
        unknown.embeddings.create(model=MODEL, input="a")
    assert caught.value.code == "invalid_api_key"


@pytest.mark.usefixtures("idle")
def test_an_answer_that_takes_too_long_is_an_error_that_can_be_retried(serve: Callable[..., ServedApp]) -> None:
    with (
        connect(serve(), timeout=0.2, max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.embeddings.create(model=MODEL, input="a")

    assert (caught.value.status_code, caught.value.code) == (503, "wait_timeout")
    assert caught.value.response.headers["x-should-retry"] == "true"
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 5


def test_the_clients_own_retry_joins_the_work(serve: Callable[..., ServedApp], idle: LedgerWorker) -> None:
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
