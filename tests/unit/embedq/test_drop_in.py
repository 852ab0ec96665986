"""`EmbeddingService` where an in-process service was: the calls that such code makes, with and without `await`."""

import asyncio
import copy
import gc
import json
import operator
import pickle
import ssl
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError

from embedq import EmbeddingService, EmbedqClientError, UnavailableError
from embedq.model_info import ModelInfo
from tests.processes import wait_until
from tests.unit.embedq.scripted import Answer, Scripted, embeddings, model, scripted

KNOWN = {"model_name": "b/c", "device": "cpu", "embedding_size": 384}
ending_with_its_loop = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""asyncio warns of connections that were open when their loop was closed."""
MODELS = Answer(200, {"object": "list", "data": [model("b/c", ready=True)]})


def test_an_in_process_service_is_asked_and_cleared_without_await(models: Scripted) -> None:
    service = EmbeddingService(models.url, model_name="b/c", device="cuda")
    assert (service.model_name, service.device) == ("b/c", "cuda")
    info = service.get_model_info()
    assert isinstance(info, dict)
    assert info == KNOWN
    assert (info["model_name"], info["device"]) == (service.model_name, service.device)
    service.clear_cache()
    assert service.device == "cuda"
    assert service.model["embedding_size"] == 384
    assert [request.target for request in models.requests] == ["/v1/models/b/c"] * 2


async def test_async_code_may_leave_out_the_await(models: Scripted) -> None:
    service = EmbeddingService(models.url)
    info = service.get_model_info()
    assert models.requests == [], "nobody has looked yet"
    assert "device" in info
    assert service.get_model_info() == info == await service.get_model_info()
    assert len(models.requests) == 1
    assert (service.model_name, service.device) == ("b/c", "cpu")
    service.clear_cache()
    assert await service.clear_cache() is None  # type: ignore[func-returns-value]
    await service.aclose()


LOOKS = [
    *(bool, copy.copy, copy.deepcopy, dict, json.dumps, len, list, repr, sorted),
    lambda info: "device" in info,
    lambda info: info == KNOWN,
    lambda info: info != KNOWN,
    lambda info: info | {},
    lambda info: {} | info,
    lambda info: {**info},
    lambda info: info.copy(),
    lambda info: info.pop("device"),
    lambda info: info.pop("none", None),
    lambda info: info.popitem(),
    lambda info: info.setdefault("device", "none"),
    lambda info: changed(info, lambda: info.setdefault("more", 1)),
    lambda info: changed(info, lambda: info.update(device="none")),
    lambda info: changed(info, lambda: info.update({"more": 1})),
    lambda info: changed(info, info.clear),
    lambda info: changed(info, lambda: operator.delitem(info, "device")),
    lambda info: changed(info, lambda: operator.setitem(info, "device", "none")),
    lambda info: changed(info, lambda: info.__ior__({"more": 1})),
    lambda info: info.get("device"),
    lambda info: list(info.items()),
    lambda info: list(reversed(info)),
    lambda info: pickle.loads(pickle.dumps(info)),  # noqa: S301 - of our own
]


def changed(info: dict[str, object], change: Callable[[], object]) -> dict[str, object]:
    change()
    return {**info}


@pytest.fixture
def models(elsewhere: Scripted) -> Scripted:
    elsewhere.answers = [MODELS]
    return elsewhere


@pytest.mark.parametrize("look", LOOKS)
async def test_whoever_looks_sees_all_of_it(look: object) -> None:
    async def never() -> dict[str, object]:
        raise AssertionError

    assert callable(look)
    assert look(ModelInfo(None, never, lambda: KNOWN)) == look(dict(KNOWN))


class Typed(BaseModel):
    """What somebody's endpoint answers."""

    model_name: str | None
    device: str | None
    embedding_size: int | None


READERS: list[Callable[[dict[str, object]], object]] = [
    *(orjson.dumps, Typed.model_validate),
    lambda info: Typed(**info).model_dump(),
    lambda info: TypeAdapter(dict[str, str | int | None]).validate_python(info),
    lambda info: TypeAdapter(dict[str, object]).dump_json(info),
]


@pytest.mark.parametrize("read", READERS)
async def test_what_reads_past_its_methods_gets_all_or_an_error_and_never_nothing(
    read: Callable[[dict[str, object]], object],
) -> None:
    async def ask() -> dict[str, object]:
        return KNOWN

    with suppress(TypeError, ValueError):
        assert read(ModelInfo(None, ask, lambda: KNOWN)) == read(dict(KNOWN))
    assert read(await ModelInfo(None, ask, lambda: KNOWN)) == read(dict(KNOWN))


@pytest.mark.parametrize("write", [orjson.dumps, TypeAdapter(dict[str, object]).dump_json])
async def test_orjson_and_pydantic_say_that_it_was_not_awaited(write: Callable[[object], bytes]) -> None:
    async def never() -> dict[str, object]:
        raise AssertionError

    with pytest.raises((TypeError, PydanticSerializationError), match="NotAwaited"):
        write(ModelInfo(None, never, lambda: KNOWN))


@pytest.mark.parametrize("awaits", [False, True])
async def test_an_endpoint_of_fastapi_answers_all_of_it_or_fails(awaits: bool, models: Scripted) -> None:
    app = FastAPI()

    @app.get("/model", response_model=Typed)
    async def answer() -> object:
        async with EmbeddingService(models.url) as service:
            return await service.get_model_info() if awaits else service.get_model_info()

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get("/model")
    assert response.status_code == (200 if awaits else 500)
    assert not awaits or response.json() == KNOWN


async def test_await_asks_in_the_loop_and_several_may_wait() -> None:
    async with scripted(MODELS) as server, EmbeddingService(server.url) as service:
        first, second = await asyncio.gather(service.get_model_info(), service.get_model_info())
        assert first == second == KNOWN
        assert await service.get_model_info() == service.get_model_info() == KNOWN


def test_what_a_caller_does_to_its_answer_changes_no_other(models: Scripted) -> None:
    service = EmbeddingService(models.url)
    service.get_model_info().clear()
    service.model["device"] = "none"
    assert service.get_model_info() == KNOWN
    assert (service.model_name, service.device) == ("b/c", "cpu")
    assert len(models.requests) == 1


def test_one_that_was_asked_about_its_model_is_forgotten_at_once(models: Scripted) -> None:
    service = EmbeddingService(models.url)
    assert service.get_model_info() == KNOWN
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(service)
        del service
        assert gone() is None
    finally:
        gc.enable()


def test_a_failure_is_raised_where_somebody_looks() -> None:
    service = EmbeddingService("http://127.0.0.1:9")
    with pytest.raises(EmbedqClientError):
        service.get_model_info()


async def test_a_model_that_nobody_has_loaded_is_no_answer_either_way(models: Scripted) -> None:
    models.answers = [Answer(200, {"object": "list", "data": []})]
    async with EmbeddingService(models.url) as service:
        with pytest.raises(UnavailableError):
            await service.get_model_info()
        with pytest.raises(UnavailableError):
            service.get_model_info()["device"]


def test_a_model_has_one_name() -> None:
    assert EmbeddingService(model="a", model_name="a").model_name == "a"
    with pytest.raises(ValueError, match="one of them"):
        EmbeddingService(model="a", model_name="b")


def test_a_models_name_in_the_place_of_the_address_is_said_to_be_that() -> None:
    with pytest.raises(ValueError, match=r"address.*model_name=.*device="):
        EmbeddingService("BAAI/bge-small-en-v1.5", "cpu")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://example.com", "https://example.com"])
def test_making_one_reads_no_certificates(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("a TLS context was made")

    monkeypatch.setattr(ssl, "SSLContext", nobody)
    monkeypatch.setattr(httpx, "AsyncClient", nobody)
    EmbeddingService(url)


async def test_a_call_over_http_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: pytest.fail("certificates were read"))
    async with scripted(embeddings([1.0])) as server, EmbeddingService(server.url) as service:
        assert await service.get_embedding("text") == [1.0]


async def test_one_that_nobody_closed_is_closed_when_it_is_forgotten() -> None:
    async with scripted(embeddings([1.0])) as server:
        service = EmbeddingService(server.url)
        await service.get_embedding("text")
        client = await service._transport._connections()
        assert not client.is_closed
        del service
        gc.collect()
        async with asyncio.timeout(30):
            while not client.is_closed:  # noqa: ASYNC110 - the end of a call that nobody waits for
                await asyncio.sleep(0)


@ending_with_its_loop
def test_one_service_may_be_used_in_one_loop_after_the_other(models: Scripted) -> None:
    service = EmbeddingService(models.url)

    async def described(service: EmbeddingService) -> dict[str, object]:
        service.clear_cache()
        return await service.get_model_info()

    assert asyncio.run(described(service)) == asyncio.run(described(service)) == KNOWN
    del service
    descriptors()


@ending_with_its_loop
def test_a_service_holds_nothing_of_the_loops_that_it_was_used_in(elsewhere: Scripted) -> None:
    elsewhere.answers = [embeddings([1.0])]
    service = EmbeddingService(elsewhere.url)
    before = descriptors()
    for _ in range(20):  # a loop has three descriptors, and its connection two: both ends are of this process
        assert asyncio.run(service.get_embedding("text")) == [1.0]
    wait_until(lambda: descriptors() <= before + 5, message=f"{before} descriptors before")
    del service
    descriptors()


@ending_with_its_loop
def test_loops_that_take_turns_cost_no_connection_each_time(elsewhere: Scripted) -> None:
    elsewhere.answers = [embeddings([1.0])]
    service = EmbeddingService(elsewhere.url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        before = descriptors()
        for _ in range(10):
            for runner in (first, second):
                assert runner.run(service.get_embedding("text")) == [1.0]
        wait_until(lambda: descriptors() <= before + 10, message=f"{before} descriptors before")
        first.run(service.aclose())
    descriptors()


@ending_with_its_loop
def test_a_loop_keeps_its_connections_while_another_one_runs(elsewhere: Scripted) -> None:
    elsewhere.answers = [embeddings([1.0])]

    async def both() -> None:
        async with EmbeddingService(elsewhere.url) as service:
            await service.get_embedding("text")
            mine = await service._transport._connections()
            await asyncio.to_thread(asyncio.run, service.get_embedding("text"))
            assert await service._transport._connections() is mine
            assert await service.get_embedding("text") == [1.0]

    asyncio.run(both())
    descriptors()


def descriptors() -> int:
    """How many this process has, without those that nobody holds any more."""
    for _ in range(2):  # the service, and then its connections
        gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_after_its_end_it_says_so() -> None:
    service = EmbeddingService()
    await service.aclose()
    with pytest.raises(EmbedqClientError, match="closed") as raised:
        await service.get_embedding("text")
    assert raised.value.code == "closed"
