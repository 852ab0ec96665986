"""`EmbeddingService` against the real web tier and a real worker."""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from embedq import EmbeddingService, Job, NotAuthenticatedError, NotFoundError, RefusedError, WaitTimeoutError
from tests.processes import CHECKOUT, ApiProcess

SECRET = "correct horse"
MANY = [f"text number {number}" for number in range(2500)]


async def refused(call: object) -> RefusedError:
    with pytest.raises(RefusedError) as raised:
        await call  # type: ignore[misc]
    return raised.value


async def test_vectors_are_the_same_on_every_way_to_them(service: EmbeddingService) -> None:
    texts = [*MANY[:20], "white  space\n", "\x00", "😀", MANY[3]]
    waited = np.array(await service.get_embeddings(texts), dtype=np.float32)
    task = await service.submit(texts)
    ended = await service.wait(task.id)
    np.testing.assert_array_equal(waited, await service.result(task.id))
    np.testing.assert_array_equal(waited[3], waited[-1])
    np.testing.assert_allclose(np.linalg.norm(waited, axis=1), 1, rtol=1e-5)
    assert await service.get_embedding(texts[7]) == waited[7].tolist()
    assert (ended.succeeded, ended["counts"]["total"], await service.item_errors(task.id)) == (True, len(texts), {})


async def test_more_texts_than_one_request_takes(service: EmbeddingService) -> None:
    vectors = await service.get_embeddings(MANY)
    assert len(vectors) == 2500
    for index in (0, 2047, 2048, 2499):
        assert vectors[index] == await service.get_embedding(MANY[index])


async def test_refusals_name_the_text(service: EmbeddingService) -> None:
    error = await refused(service.get_embeddings(["fine"] * 2100 + [""]))
    assert (error.status, error.code, error.input_index, bool(error.request_id)) == (400, "empty_input", 2100, True)
    error = await refused(service.submit(["fine", "bad \ud800"]))
    assert (error.code, error.input_index) == ("invalid_unicode", 1)
    assert (await refused(service.submit(["x"] * 2049))).code == "too_many_inputs"


async def test_a_text_that_fails_leaves_its_neighbours_alone(service: EmbeddingService) -> None:
    texts = ["short", "long " * 1000, "also short"]
    task = await service.submit(texts, truncate=False)
    ended = await service.wait(task.id)
    assert (ended.status, ended["counts"]["completed"], ended.succeeded) == ("completed", 2, False)
    assert np.isnan(await service.result(task.id)).all(axis=1).tolist() == [False, True, False]
    errors = await service.item_errors(task.id)
    assert {index: error["code"] for index, error in errors.items()} == {1: "input_too_long"}
    error = await refused(service.get_embeddings(texts, truncate=False))
    assert (error.code, error.input_index) == ("input_too_long", 1)


async def test_options_reach_the_model(service: EmbeddingService) -> None:
    plain = await service.get_embedding("text")
    short = await service.get_embedding("text", dimensions=8)
    assert len(short) == 8
    np.testing.assert_allclose(np.linalg.norm(short), 1, rtol=1e-5)
    asked = await service.get_embedding("text", prompt_name="query")
    assert asked == await service.get_embedding("text", input_type="query") != plain
    assert (await refused(service.get_embedding("text", dimensions=10_000))).param == "dimensions"


async def test_a_repeated_submission_is_the_same_task(service: EmbeddingService) -> None:
    first, again = await asyncio.gather(*(service.submit(["a", "b"], idempotency_key="my-job") for _ in range(2)))
    assert first.id == again.id
    error = await refused(service.submit(["something else"], idempotency_key="my-job"))
    assert error.code == "idempotency_key_reused"
    await service.wait(first.id)


async def test_the_model_is_described_as_an_in_process_service_would(service: EmbeddingService) -> None:
    info = await service.get_model_info()
    assert info == {"model_name": "sentence-transformers/all-MiniLM-L6-v2", "device": "cpu", "embedding_size": 384}


def test_the_tests_of_an_in_process_service_pass(api: ApiProcess) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "unittest", "tests.integration.client.drop_in"],
        cwd=CHECKOUT,
        env=os.environ | {"EMBEDQ_URL": api.base_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Ran 5 tests" in ran.stderr


async def test_a_running_task_is_watched_and_cancelled(api: ApiProcess, slow_model: str) -> None:
    async with EmbeddingService(api.base_url, model=slow_model) as service:
        task = await service.submit(MANY[:1000], lane="bulk")
        begun = asyncio.Event()

        def notice(state: Job) -> None:
            if state["counts"]["completed"]:
                begun.set()

        with pytest.raises(WaitTimeoutError, match="it goes on"):
            await service.wait(task.id, 0.2)
        watching = asyncio.create_task(service.wait(task.id, on_change=notice))
        await begun.wait()
        assert (await service.cancel(task.id)).status == "cancelled"
        ended = await watching
        assert (ended.status, (await service.cancel(task.id)).status) == ("cancelled", "cancelled")
        completed = ended["counts"]["completed"]
        assert 0 < completed < 1000
        vectors, errors = await service.result(task.id), await service.item_errors(task.id)
        assert np.isnan(vectors).all(axis=1).sum() == len(errors) == 1000 - completed


async def test_a_web_tier_that_restarts_loses_nobody(another_api: Callable[..., ApiProcess]) -> None:
    api = another_api()
    async with EmbeddingService(api.base_url) as service:
        task = await service.submit(MANY[:100])
        api.kill()
        waiting = asyncio.create_task(service.wait(task.id))
        api.launch()
        assert (await waiting).succeeded
        assert len(await service.get_embeddings(["a", "b"])) == 2


async def test_a_key_is_needed_where_keys_are_set(another_api: Callable[..., ApiProcess]) -> None:
    api = another_api(api_keys=f"me:{hashlib.sha256(SECRET.encode()).hexdigest()}")
    for key, kind in (None, NotAuthenticatedError), (SECRET, NotFoundError):
        async with EmbeddingService(api.base_url, api_key=key) as service:
            with pytest.raises(kind):
                await service.status("task_nonsense")
