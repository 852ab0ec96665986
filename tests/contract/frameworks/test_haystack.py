"""Haystack's embedders for OpenAI."""

from contextlib import closing

import pytest

from tests.heavy import haystack, haystack_embedders, haystack_utils
from tests.integration.api.ledger_worker import vector
from tests.integration.api.served import MODEL


def test_documents_in_several_requests(base_url: str) -> None:
    embedder = haystack_embedders.OpenAIDocumentEmbedder(
        api_key=haystack_utils.Secret.from_token("any"),
        model=MODEL,
        api_base_url=base_url,
        batch_size=4,
        progress_bar=False,
        raise_on_failure=True,
    )
    documents = [haystack.Document(content=f"document {n} {'x' * n}") for n in range(10)]

    with closing(embedder):
        found = embedder.run(documents=documents)

    texts = [str(document.content) for document in documents]
    assert [document.embedding for document in found["documents"]] == [
        pytest.approx(vector(text).tolist()) for text in texts
    ]
    assert found["meta"]["model"] == MODEL
    assert found["meta"]["usage"] == {"prompt_tokens": 10, "total_tokens": 10}


def test_one_text(base_url: str) -> None:
    embedder = haystack_embedders.OpenAITextEmbedder(
        api_key=haystack_utils.Secret.from_token("any"), model=MODEL, api_base_url=base_url
    )

    with closing(embedder):
        assert embedder.run(text="one")["embedding"] == pytest.approx(vector("one").tolist())
