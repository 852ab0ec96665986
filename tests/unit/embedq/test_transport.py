"""One call with its repetitions, against a server on loopback that follows a script."""

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from embedq import transport as module
from embedq.errors import (
    EmbedqClientError,
    NotAuthenticatedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UnreachableError,
    WaitTimeoutError,
)
from embedq.transport import Transport, retry_delay_s, route
from tests.processes import wait_until
from tests.unit.embedq.scripted import HANG_UP, SILENCE, Answer, Scripted, problem, scripted

FINE = Answer(200, {"object": "fine"})
PATH = "/v1/tasks/task_1"
UNSURE = ("redis_unavailable", "not_replicated", "overloaded")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_S", 0.001)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_CONTACT_S", 0.05)


@pytest.mark.parametrize(
    ("status", "headers", "attempt", "delay_s"),
    [
        (503, {"retry-after": "7"}, 0, 7),
        (503, {"retry-after": "0"}, 3, 0),
        (503, {"x-should-retry": "true", "retry-after": "2"}, 5, 2),
        (503, {"x-should-retry": "false", "retry-after": "2"}, 0, None),
        (503, {}, 0, 0.001),
        (503, {}, 2, 0.004),
        (503, {}, 10_000, 0.256),
        (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1, 0.002),
        (503, {"retry-after": "-5"}, 1, 0.002),
        (503, {"retry-after": "²"}, 0, 0.001),
        (429, {"retry-after": "120"}, 0, 120),
        (409, {"retry-after": "3"}, 0, None),
        (409, {"x-should-retry": "true", "retry-after": "3"}, 0, 3),
        (502, {}, 0, 0.001),
        (504, {}, 0, 0.001),
        (408, {}, 0, 0.001),
        (400, {"retry-after": "1"}, 0, None),
        (404, {}, 0, None),
        (500, {}, 0, None),
    ],
)
def test_when_an_error_answer_is_followed_by_another_try(
    status: int, headers: dict[str, str], attempt: int, delay_s: float | None
) -> None:
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = retry_delay_s(attempt, httpx.Response(status, headers=named), 0)
    if delay_s is None:
        assert found is None
    else:
        assert delay_s <= (found or 0) <= delay_s * 1.25


@pytest.mark.parametrize(
    "trouble",
    [
        problem(503, "backlog_full", retry_after="0"),
        problem(429, "rate_limited"),
        problem(409, "task_not_finished", x_should_retry="true"),
        Answer(502, b"<html>Bad gateway</html>"),
        HANG_UP,
    ],
)
async def test_what_may_pass_is_repeated_as_it_was(trouble: Answer) -> None:
    async with scripted(trouble, trouble, FINE) as server, Transport(server.url) as transport:
        answer = await transport.json("POST", "/v1/tasks", {"input": "ä"}, headers={"Idempotency-Key": "k"})
        assert answer == {"object": "fine"}
        assert [request.json() for request in server.requests] == [{"input": "ä"}] * 3
        assert [request.headers["idempotency-key"] for request in server.requests] == ["k"] * 3
        assert {request.headers["content-type"] for request in server.requests} == {"application/json"}


@pytest.mark.parametrize("lost", [HANG_UP, Answer(502, b"<html>"), problem(503, "overloaded", retry_after="0")])
async def test_what_tells_a_secret_is_never_repeated(lost: Answer) -> None:
    async with scripted(lost, FINE) as server, Transport(server.url) as transport:
        with pytest.raises(EmbedqClientError) as raised:
            await transport.json("POST", "/v1/keys", {"name": "ops"}, once=True)
        assert len(server.requests) == 1
    assert (raised.value.status or 0) == lost.status


@pytest.mark.parametrize("gone", [problem(404, "dataset_not_found"), problem(410, "task_expired")])
@pytest.mark.parametrize("lost", [HANG_UP, *(problem(503, code, retry_after="0") for code in UNSURE)])
async def test_what_a_lost_deletion_has_deleted_is_not_missed(lost: Answer, gone: Answer) -> None:
    async with scripted(lost, gone) as server, Transport(server.url) as transport:
        assert (await transport.call("DELETE", "/v1/datasets/a")).status_code == gone.status
    busy = problem(429, "rate_limited", retry_after="0")
    async with scripted(busy, gone) as server, Transport(server.url) as transport:
        with pytest.raises(NotFoundError):
            await transport.call("DELETE", "/v1/datasets/a")


@pytest.mark.parametrize("elsewhere", [Answer(404, b"<html>No back end</html>"), problem(404, "route_not_found")])
async def test_a_proxy_that_finds_no_server_has_deleted_nothing(elsewhere: Answer) -> None:
    bad_gateway = Answer(502, b"<html>Bad gateway</html>")
    async with scripted(bad_gateway, elsewhere) as server, Transport(server.url) as transport:
        with pytest.raises(NotFoundError):
            await transport.call("DELETE", "/v1/datasets/a")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(400, "empty_input", param="input[3]"), RefusedError),
        (problem(401, "invalid_api_key"), NotAuthenticatedError),
        (problem(404, "task_not_found"), NotFoundError),
        (problem(409, "task_already_ended", x_should_retry="false"), RefusedError),
        (problem(410, "task_expired"), NotFoundError),
        (problem(429, "key_limit", x_should_retry="false"), RefusedError),
        (problem(503, "storage_full", x_should_retry="false"), UnavailableError),
    ],
)
async def test_what_will_not_pass_is_raised_at_once(answer: Answer, kind: type[EmbedqClientError]) -> None:
    async with scripted(answer) as server, Transport(server.url) as transport:
        with pytest.raises(kind) as raised:
            await transport.call("GET", PATH, timeout_s=20)
        assert len(server.requests) == 1
    assert type(raised.value) is kind
    assert raised.value.status == answer.status
    assert raised.value.code == answer.body["error"]["code"]
    assert raised.value.param == answer.body["error"]["param"]
    assert raised.value.message == "Text."


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[1]", b'{"error": "TEI"}', b'{"error": {}}'])
async def test_an_error_in_foreign_words_is_still_an_error(body: bytes) -> None:
    answer = Answer(418, body, {"x-request-id": "r-1"})
    async with scripted(answer) as server, Transport(server.url) as transport:
        with pytest.raises(RefusedError) as raised:
            await transport.call("GET", PATH, timeout_s=20)
    assert (raised.value.code, raised.value.request_id) == ("unexpected_answer", "r-1")


async def test_a_delay_beyond_the_callers_time_is_not_waited_for() -> None:
    busy = problem(503, "backlog_full", retry_after="100")
    async with scripted(busy) as server, Transport(server.url) as transport:
        with pytest.raises(UnavailableError):
            await transport.call("GET", PATH, timeout_s=60)
        assert len(server.requests) == 1


@pytest.mark.usefixtures("_impatient")
async def test_a_server_that_never_was_there_is_given_up_soon() -> None:
    async with scripted(FINE) as server:
        address = server.url
    delays: list[float] = []
    async with Transport(address, on_retry=lambda _, delay_s: delays.append(delay_s)) as transport:
        with pytest.raises(UnreachableError, match=f"No answer from {address}"):
            await transport.call("GET", PATH, timeout_s=600)
    # 1 + 2 + 4 + 8 + 16 ms is what fits into 50 ms; patience with a server that answered before would be fifteen.
    assert len(delays) <= 5


async def test_a_server_that_answered_before_gets_more_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_CONTACT_S", 0)
    async with scripted(FINE, HANG_UP, HANG_UP, FINE) as server, Transport(server.url) as transport:
        await transport.call("GET", PATH, timeout_s=60)
        await transport.call("GET", PATH, timeout_s=60)
        assert len(server.requests) == 4


@pytest.mark.parametrize("call", [lambda of: of.call("GET", PATH), lambda of: of.probe(PATH)])
async def test_silence_ends_with_the_callers_time(call: Callable[[Transport], Awaitable[object]]) -> None:
    async with scripted(SILENCE) as server, Transport(server.url, timeout_s=0.2) as transport:
        with pytest.raises(WaitTimeoutError, match="did not answer in time"):
            await call(transport)


async def test_a_probe_waits_as_long_as_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[httpx.Request] = []

    async def keep(_: object, request: httpx.Request, **__: object) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    monkeypatch.setattr(httpx.AsyncClient, "send", keep)
    async with Transport(timeout_s=90) as transport:
        await transport.probe(PATH)
    assert sent[0].extensions["timeout"]["read"] == 90


@pytest.mark.parametrize(
    ("wait_s", "timeout_s", "query"), [(55, 600, "wait=55"), (55, 20, "wait=18"), (55, 0.5, "wait=1"), (0, 9, "")]
)
async def test_the_server_is_asked_to_answer_before_the_client_gives_up(
    wait_s: float, timeout_s: float, query: str
) -> None:
    async with scripted(FINE) as server, Transport(server.url) as transport:
        await transport.call("GET", "/", wait_s=wait_s, timeout_s=timeout_s)
        assert server.requests[0].target.partition("?")[2] == query


async def test_the_key_travels_in_the_header_only() -> None:
    async with scripted(FINE) as server, Transport(server.url, api_key="secret") as transport:
        await transport.call("GET", PATH, timeout_s=5)
        assert server.requests[0].headers["authorization"] == "Bearer secret"
        assert "secret" not in server.requests[0].target


@pytest.mark.parametrize("key", ["sécret", "sec\nret", "sec\x00ret", "秘密"])
async def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        Transport("http://127.0.0.1:9", api_key=key)
    assert key not in str(raised.value)


async def test_lone_surrogates_reach_the_server_which_explains_them() -> None:
    async with scripted(FINE) as server, Transport(server.url) as transport:
        await transport.call("POST", "/", {"input": ["ä", "\ud800"]}, timeout_s=5)
        assert server.requests[0].json() == {"input": ["ä", "\ud800"]}


@pytest.mark.parametrize("below", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_be_that_of_openai_clients(below: str) -> None:
    async with scripted(FINE) as server, Transport(server.url + below) as transport:
        await transport.call("GET", PATH, timeout_s=5)
        assert server.requests[0].target == "/v1/tasks/task_1"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "redis://127.0.0.1"])
async def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Transport(url)


@pytest.mark.usefixtures("_impatient")
async def test_a_password_in_the_address_is_not_shown() -> None:
    async with scripted(FINE) as server:
        address = server.url.replace("//", "//user:hunter2@")
    async with Transport(address) as transport:
        with pytest.raises(UnreachableError) as raised:
            await transport.call("GET", PATH, timeout_s=5)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
def test_what_would_reach_another_route_is_no_name(name: str) -> None:
    assert route("keys", "a/../b", "purge") == "/v1/keys/a%2F..%2Fb/purge"
    with pytest.raises(RefusedError, match="no id and no name"):
        route("keys", name, "purge")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", {"data": []}])
async def test_an_answer_that_is_not_the_servers_is_an_error_in_words(body: object) -> None:
    async with scripted(Answer(200, body)) as server, Transport(server.url) as transport:
        with pytest.raises(RefusedError, match="embedq server"):
            await transport.json("GET", PATH)


async def test_after_its_end_it_says_so() -> None:
    transport = Transport()
    await transport.aclose()
    with pytest.raises(EmbedqClientError, match="closed"):
        await transport.call("GET", PATH)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_it_may_be_used_in_one_loop_after_the_other(elsewhere: Scripted) -> None:
    elsewhere.answers = [FINE]
    transport = Transport(elsewhere.url)
    before = descriptors()
    for _ in range(20):  # a loop has three descriptors, and its connection two: both ends are of this process
        assert asyncio.run(transport.json("GET", PATH)) == {"object": "fine"}
    wait_until(lambda: descriptors() <= before + 10, message=f"{before} descriptors before")
    del transport
    descriptors()


def descriptors() -> int:
    """How many this process has, without those that nobody holds any more."""
    for _ in range(2):
        gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_call_over_http_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: pytest.fail("certificates were read"))
    async with scripted(FINE) as server, Transport(server.url) as transport:
        await transport.call("GET", PATH)
