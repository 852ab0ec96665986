"""`EmbeddingService` in requests and answers, against a server on loopback that follows a script."""

import asyncio
import json
from typing import Any

import pytest

from embedq import EmbeddingService, EmbedqClientError, Job, RefusedError, UnavailableError
from tests.unit.embedq.scripted import Answer, Request, Scripted, embeddings, model, problem, scripted, task

KNOWN = {"model_name": "b/c", "device": "cpu", "embedding_size": 384}


def lengths_and_numbers(request: Request) -> Answer:
    """Each text's number and length as its vector; the text "bad" fails."""
    texts = request.json()["input"]
    if "bad" in texts:
        param = f"input[{texts.index('bad')}]"
        return problem(400, "input_too_long", f"{param} is too long.", param)
    return embeddings(*([float(text.split()[0]), float(len(text))] for text in texts))


async def test_a_list_is_a_list_and_a_text_is_a_text() -> None:
    service: Any = EmbeddingService("http://127.0.0.1:1")
    for text in (["a", "b"], b"x", None):
        with pytest.raises(TypeError, match=r"get_embedding takes one text, not a .*; get_embeddings takes several"):
            await service.get_embedding(text)
    for texts in ([["a", "b"]], ["a", 7], b"ab", "ab"):
        with pytest.raises(TypeError, match="get_embeddings takes"):
            await service.get_embeddings(texts)
    for key in ("my\nkey", "schlüssel"):
        with pytest.raises(EmbedqClientError, match="idempotency_key") as raised:
            await service.submit(["a"], idempotency_key=key)
        assert key not in str(raised.value)


async def test_long_texts_travel_in_smaller_requests_and_a_failing_one_is_counted_in_the_callers_list() -> None:
    texts = [f"{number} {'x' * 50_000}" for number in range(10)]
    async with scripted(lengths_and_numbers) as server, EmbeddingService(server.url) as service:
        assert len(await service.get_embeddings(texts)) == 10
        assert [len(request.json()["input"]) for request in server.requests] == [2] * 5
        with pytest.raises(RefusedError, match=r"^input\[2050\] is too long") as raised:
            await service.get_embeddings(["1"] * 2050 + ["bad"])
    assert (raised.value.input_index, raised.value.code) == (2050, "input_too_long")


async def test_a_limit_of_the_key_is_waited_for_where_time_mends_it_and_split_where_it_does_not() -> None:
    def only_three(request: Request) -> Answer:
        too_much = len(request.json()["input"]) > 3
        return problem(429, "key_limit", x_should_retry="false") if too_much else lengths_and_numbers(request)

    async with scripted(only_three) as server, EmbeddingService(server.url) as service:
        vectors = await service.get_embeddings([str(number) for number in range(10)])
        assert [vector[0] for vector in vectors] == list(range(10))
        assert [len(request.json()["input"]) for request in server.requests] == [10, 5, 2, 3, 5, 2, 3]
    full = problem(429, "key_limit", retry_after="60")
    async with scripted(full) as server, EmbeddingService(server.url, timeout_s=1) as service:
        with pytest.raises(UnavailableError):
            await service.get_embeddings(["a", "b"])
        assert [len(request.json()["input"]) for request in server.requests] == [2]


@pytest.mark.parametrize("body", [b"{}", {"data": 5}, {"data": [{"embedding": "?"}]}, b"\x93NUMPY\x01\x00"])
async def test_what_is_no_vector_is_refused(body: object) -> None:
    async with scripted(Answer(200, body)) as server, EmbeddingService(server.url) as service:
        for call in (service.get_embedding("a"), service.result("task_1")):
            with pytest.raises(RefusedError, match="embedq server"):
                await call


async def test_the_ready_model_is_described_and_remembered_until_the_cache_is_cleared(elsewhere: Scripted) -> None:
    entries = [model("a", ready=False), model("b/c", ready=True)]
    elsewhere.answers = [Answer(200, {"object": "list", "data": entries})]
    async with EmbeddingService(elsewhere.url) as service:
        assert (service.model_name, service.device) == (None, None)
        assert await service.get_model_info() == service.get_model_info() == KNOWN
        assert (service.model_name, service.device) == ("b/c", "cpu")
        assert len(elsewhere.requests) == 1
        await service.clear_cache()
        assert list(await asyncio.gather(service.get_model_info(), service.get_model_info())) == [KNOWN, KNOWN]
        assert len(elsewhere.requests) == 2


def test_an_in_process_service_is_asked_and_cleared_without_await(elsewhere: Scripted) -> None:
    elsewhere.answers = [Answer(200, model("b/c d", ready=True))]
    service = EmbeddingService(elsewhere.url, model_name="b/c d", device="cuda")
    assert (service.model_name, service.device) == ("b/c d", "cuda")
    info = service.get_model_info()
    assert json.loads(json.dumps(info)) == dict(info) == KNOWN | {"model_name": "b/c d"}
    info.clear()
    assert service.model["embedding_size"] == 384, "what a caller does to its answer changes no other"
    service.clear_cache()
    assert service.device == "cuda"
    assert [request.target for request in elsewhere.requests] == ["/v1/models/b/c%20d"]
    for entries in ([], [model("a", ready=False, dimension=None, device=None)]):
        elsewhere.answers = [Answer(200, {"object": "list", "data": entries})]
        with pytest.raises(UnavailableError, match="doctor"):
            EmbeddingService(elsewhere.url).get_model_info()


def test_arguments_of_an_in_process_service_in_the_wrong_place_are_said_to_be_that() -> None:
    assert EmbeddingService(model="a", model_name="a").model_name == "a"
    with pytest.raises(ValueError, match="one of them"):
        EmbeddingService(model="a", model_name="b")
    with pytest.raises(ValueError, match=r"address.*model_name=.*device="):
        EmbeddingService("BAAI/bge-small-en-v1.5", "cpu")


async def test_waiting_is_left_to_the_server_and_changes_are_told_once_each() -> None:
    states: list[Job] = []
    script = [
        task("queued", total=2, completed=0),
        task("queued", total=2, completed=0),
        task("in_progress", total=2, completed=1),
        task("completed", total=2, completed=1, failed=1),
    ]
    async with scripted(*script, script[-2], task()) as server, EmbeddingService(server.url) as service:
        ended = await service.wait("task_1", on_change=states.append)
        assert (await service.wait("task_1")).succeeded
        asked = [request.target.partition("?")[2] for request in server.requests]
    assert asked == ["", *["wait=1"] * 3, *["wait=55"] * 2]
    assert (ended.ended, ended.succeeded) == (True, False)
    assert [(job["counts"]["completed"], job["counts"]["failed"]) for job in states] == [(0, 0), (1, 0), (1, 1)]
