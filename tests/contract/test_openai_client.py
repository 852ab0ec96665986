"""The web tier through OpenAI's own Python client."""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from tasks.ledger import ItemError
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import MODEL, ServedApp


@pytest.fixture
def worker(redis_url: str) -> Iterator[LedgerWorker]:
    with LedgerWorker(redis_url, MODEL) as started:
        started.announce()
        with started.serving():
            yield started


@pytest.fixture(params=["/v1", ""], ids=["with /v1", "without"])
def client(redis_url: str, worker: LedgerWorker, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with (
        ServedApp(redis_url) as served,
        openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}{request.param}", api_key="any") as connected,
    ):
        yield connected


def test_embeddings_by_default_travel_as_base64(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=["one", "two"])

    assert [item.index for item in answer.data] == [0, 1]
    np.testing.assert_array_equal(np.array(answer.data[1].embedding, dtype="f4"), vector("two"))
    assert answer.model == MODEL
    assert answer.usage.total_tokens == 2


def test_both_formats_on_request(client: openai.OpenAI) -> None:
    floats = client.embeddings.create(model=MODEL, input="one", encoding_format="float").data[0].embedding
    # The client's types promise floats, whatever was asked for.
    packed: Any = client.embeddings.create(model=MODEL, input="one", encoding_format="base64").data[0].embedding

    assert floats == pytest.approx(vector("one").tolist())
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), vector("one"))


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_a_bad_request_is_told_field_and_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=MODEL, input=["a", ""])

    assert (caught.value.code, caught.value.param) == ("empty_input", "input[1]")
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="nobody/knows", input="a")

    assert caught.value.code == "model_not_found"


def test_an_input_that_cannot_be_encoded_is_not_retried(client: openai.OpenAI, worker: LedgerWorker) -> None:
    worker.errors["bad"] = ItemError("encoding_failed", "Not finite.")
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.embeddings.create(model=MODEL, input=["good", "bad"])

    assert (caught.value.code, caught.value.param) == ("encoding_failed", "input[1]")


def test_the_stock_client_can_submit_without_waiting(client: openai.OpenAI) -> None:
    raw = client.embeddings.with_raw_response.create(
        model=MODEL, input="one", extra_headers={"Prefer": "respond-async"}
    )

    assert raw.status_code == 202
    assert raw.headers["location"].startswith("/v1/tasks/task_")
