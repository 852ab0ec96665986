"""The routes of text-embeddings-inference through Hugging Face's own client."""

from collections.abc import Iterator

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.integration.api.ledger_worker import vector


@pytest.fixture
def url(base_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # Developers switch the hub off in their environment, and with it goes every address.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield base_url.removesuffix("/v1")
    huggingface_hub.close_session()  # one for the whole process


def test_one_text_and_several(url: str) -> None:
    for path in ("", "/", "/embed"):
        client = InferenceClient(f"{url}{path}")
        one, several = client.feature_extraction("one"), client.feature_extraction(["one", "two"])
        assert one.dtype == several.dtype == np.float32
        np.testing.assert_array_equal(one, [vector("one")])
        np.testing.assert_array_equal(several, [vector("one"), vector("two")])


def test_every_option(url: str) -> None:
    found = InferenceClient(url, token="any").feature_extraction(
        "one", normalize=True, prompt_name="query", truncate=True, truncation_direction="right", dimensions=4
    )

    assert found.shape == (1, 4)


async def test_asynchronously(url: str) -> None:
    async with AsyncInferenceClient(url) as client:
        found = await client.feature_extraction(["one", "two"])

    np.testing.assert_array_equal(found, [vector("one"), vector("two")])


def test_the_user_is_shown_what_is_wrong(url: str) -> None:
    with pytest.raises(HfHubHTTPError, match="prompt_name") as caught:
        InferenceClient(url).feature_extraction("one", prompt_name="nope")

    assert caught.value.response.status_code == 422
