"""`EmbeddingService` in requests and answers, against a server on loopback that follows a script."""

import asyncio
import json

import pytest

from embedq import (
    EmbeddingService,
    EmbedqClientError,
    Job,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from tests.unit.embedq.scripted import (
    HANG_UP,
    Answer,
    Request,
    Scripted,
    embeddings,
    model,
    problem,
    scripted,
    task,
)


def lengths_and_numbers(request: Request) -> Answer:
    """Each text's number and length as its vector; the text "bad" fails."""
    texts = request.json()["input"]
    if "bad" in texts:
        param = f"input[{texts.index('bad')}]"
        return problem(400, "input_too_long", f"{param} is too long.", param)
    return embeddings(*([float(text.split()[0]), float(len(text))] for text in texts))


@pytest.mark.parametrize("text", [["a", "b"], b"x", None, 7])
async def test_one_text_is_a_text(text: object) -> None:
    async with EmbeddingService("http://127.0.0.1:1") as service:
        with pytest.raises(TypeError, match=r"get_embedding takes one text, not a .*; get_embeddings takes several"):
            await service.get_embedding(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [[["a", "b"]], ["a", 7], b"ab"])
async def test_several_texts_are_texts(texts: object) -> None:
    async with EmbeddingService("http://127.0.0.1:1") as service:
        with pytest.raises(TypeError, match="get_embeddings takes"):
            await service.get_embeddings(texts)  # type: ignore[arg-type]


async def test_long_texts_travel_in_smaller_requests() -> None:
    texts = [f"{number} {'x' * 50_000}" for number in range(10)]
    async with scripted(lengths_and_numbers) as server, EmbeddingService(server.url) as service:
        assert len(await service.get_embeddings(texts)) == 10
        assert [len(request.json()["input"]) for request in server.requests] == [2] * 5


LESS = [
    problem(400, "too_many_inputs"),
    problem(413, "body_too_large"),
    problem(429, "key_limit", x_should_retry="false"),
]


@pytest.mark.parametrize("refusal", LESS)
async def test_a_server_with_lower_limits_gets_smaller_requests(refusal: Answer) -> None:
    def only_three(request: Request) -> Answer:
        return refusal if len(request.json()["input"]) > 3 else lengths_and_numbers(request)

    async with scripted(only_three) as server, EmbeddingService(server.url) as service:
        vectors = await service.get_embeddings([str(number) for number in range(10)])
        assert [vector[0] for vector in vectors] == list(range(10))
        assert [len(request.json()["input"]) for request in server.requests] == [10, 5, 2, 3, 5, 2, 3]
        with pytest.raises(RefusedError, match=r"^input\[8\] is too long") as raised:
            await service.get_embeddings([*"01234567", "bad"])
    assert raised.value.input_index == 8


async def test_a_limit_that_time_mends_is_waited_for_and_not_split() -> None:
    full = problem(429, "key_limit", retry_after="60")
    async with scripted(full) as server, EmbeddingService(server.url, timeout_s=1) as service:
        with pytest.raises(UnavailableError):
            await service.get_embeddings(["a", "b"])
        assert [len(request.json()["input"]) for request in server.requests] == [2]


async def test_a_failing_text_is_counted_in_the_callers_list() -> None:
    texts = ["1"] * 2050 + ["bad"]
    async with scripted(lengths_and_numbers) as server, EmbeddingService(server.url) as service:
        with pytest.raises(RefusedError, match=r"^input\[2050\] is too long") as raised:
            await service.get_embeddings(texts)
    assert (raised.value.input_index, raised.value.code) == (2050, "input_too_long")


@pytest.mark.parametrize("body", [b"", b"{}", {"data": 5}, {"data": [{"embedding": "?"}]}, {"data": [{}]}])
async def test_what_is_no_list_of_vectors_is_refused(body: object) -> None:
    async with scripted(Answer(200, body)) as server, EmbeddingService(server.url) as service:
        with pytest.raises(RefusedError, match="embedq server"):
            await service.get_embedding("a")


@pytest.fixture
def models(elsewhere: Scripted) -> Scripted:
    entries = [model("a", ready=False), model("b/c", ready=True)]
    elsewhere.answers = [Answer(200, {"object": "list", "data": entries})]
    return elsewhere


KNOWN = {"model_name": "b/c", "device": "cpu", "embedding_size": 384}


async def test_the_ready_model_is_described_and_remembered_until_the_cache_is_cleared(models: Scripted) -> None:
    async with EmbeddingService(models.url) as service:
        assert (service.model_name, service.device) == (None, None)
        assert await service.get_model_info() == KNOWN
        assert service.get_model_info() == KNOWN
        assert (service.model_name, service.device) == ("b/c", "cpu")
        assert len(models.requests) == 1
        await service.clear_cache()
        assert list(await asyncio.gather(service.get_model_info(), service.get_model_info())) == [KNOWN, KNOWN]
        assert len(models.requests) == 2


def test_an_in_process_service_is_asked_and_cleared_without_await(models: Scripted) -> None:
    models.answers = [Answer(200, model("b/c d", ready=True))]
    service = EmbeddingService(models.url, model_name="b/c d", device="cuda")
    assert (service.model_name, service.device) == ("b/c d", "cuda")
    info = service.get_model_info()
    assert json.loads(json.dumps(info)) == dict(info) == KNOWN | {"model_name": "b/c d"}
    info.clear()
    assert service.model["embedding_size"] == 384, "what a caller does to its answer changes no other"
    service.clear_cache()
    assert service.device == "cuda"
    assert [request.target for request in models.requests] == ["/v1/models/b/c%20d"]


@pytest.mark.parametrize("entries", [[], [model("a", ready=False, dimension=None, device=None)]])
def test_without_a_loaded_model_there_is_nothing_to_describe(entries: list[object], models: Scripted) -> None:
    models.answers = [Answer(200, {"object": "list", "data": entries})]
    with pytest.raises(UnavailableError, match="doctor"):
        EmbeddingService(models.url).get_model_info()


def test_a_model_has_one_name() -> None:
    assert EmbeddingService(model="a", model_name="a").model_name == "a"
    with pytest.raises(ValueError, match="one of them"):
        EmbeddingService(model="a", model_name="b")


def test_a_models_name_in_the_place_of_the_address_is_said_to_be_that() -> None:
    with pytest.raises(ValueError, match=r"address.*model_name=.*device="):
        EmbeddingService("BAAI/bge-small-en-v1.5", "cpu")


async def test_a_submission_repeated_after_a_lost_answer_has_the_same_key() -> None:
    async with scripted(HANG_UP, task()) as server, EmbeddingService(server.url) as service:
        await service.submit(["a"], idempotency_key="my-key")
        await service.submit(["b"])
        keys = [request.headers["idempotency-key"] for request in server.requests]
    assert keys[:2] == ["my-key", "my-key"]


@pytest.mark.parametrize("key", ["my\nkey", "schlüssel"])
async def test_a_key_of_a_submission_that_cannot_be_sent_is_said_at_once(key: str) -> None:
    async with EmbeddingService("http://127.0.0.1:1") as service:
        with pytest.raises(EmbedqClientError, match="idempotency_key") as raised:
            await service.submit(["a"], idempotency_key=key)
    assert key not in str(raised.value)


async def test_waiting_is_left_to_the_server() -> None:
    working, done = task("in_progress", completed=0), task()
    async with scripted(working, done) as server, EmbeddingService(server.url) as service:
        assert (await service.wait("task_1")).succeeded
        assert [request.target for request in server.requests] == ["/v1/tasks/task_1?wait=55"] * 2


async def test_changes_are_told_once_each() -> None:
    states: list[Job] = []
    script = [
        task("queued", total=2, completed=0),
        task("queued", total=2, completed=0),
        task("in_progress", total=2, completed=1),
        task("completed", total=2, completed=1, failed=1),
    ]
    async with scripted(*script) as server, EmbeddingService(server.url) as service:
        ended = await service.wait("task_1", on_change=states.append)
        assert [request.target.partition("?")[2] for request in server.requests] == ["", *["wait=1"] * 3]
    assert ended.ended
    assert not ended.succeeded
    assert [(job["counts"]["completed"], job["counts"]["failed"]) for job in states] == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("body", [b"", b"{}", b"\x93NUMPY\x01\x00"])
async def test_what_is_no_array_is_refused(body: bytes) -> None:
    async with scripted(Answer(200, body)) as server, EmbeddingService(server.url) as service:
        with pytest.raises(RefusedError, match="npy"):
            await service.result("task_1")


async def test_an_id_cannot_reach_another_route() -> None:
    async with scripted(problem(404, "task_not_found")) as server, EmbeddingService(server.url) as service:
        with pytest.raises(NotFoundError):
            await service.cancel("../models?x#y")
        assert server.requests[0].target == "/v1/tasks/..%2Fmodels%3Fx%23y/cancel"


async def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(task()) as server:
        monkeypatch.setenv("EMBEDQ_URL", server.url)
        monkeypatch.setenv("EMBEDQ_API_KEY", "from-the-environment")
        async with EmbeddingService() as service:
            await service.status("task_1")
        assert server.requests[0].headers["authorization"] == "Bearer from-the-environment"
