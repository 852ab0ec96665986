"""One call with its repetitions, against a server on loopback that follows a script."""

import asyncio
import gc
import ssl

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
)
from embedq.transport import Transport, retry_delay_s, route
from tests.unit.embedq.scripted import HANG_UP, Answer, Scripted, problem, scripted

FINE = Answer(200, {"object": "fine"})
PATH = "/v1/tasks/task_1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_S", 0.001)


@pytest.mark.parametrize(
    ("status", "headers", "attempt", "delay_s"),
    [
        (503, {"retry-after": "7"}, 0, 7),
        (503, {"retry-after": "0"}, 3, 0),
        (503, {"x-should-retry": "false", "retry-after": "2"}, 0, None),
        (503, {}, 2, 0.004),
        (503, {}, 10_000, 0.256),
        (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1, 0.002),
        (503, {"retry-after": "²"}, 0, 0.001),
        (429, {"retry-after": "120"}, 0, 120),
        (409, {"x-should-retry": "true", "retry-after": "3"}, 0, 3),
        (409, {"retry-after": "3"}, 0, None),
        (502, {}, 0, 0.001),
        (504, {}, 0, 0.001),
        (408, {}, 0, 0.001),
        (400, {"retry-after": "1"}, 0, None),
        (500, {}, 0, None),
    ],
)
def test_when_an_error_answer_is_followed_by_another_try(
    status: int, headers: dict[str, str], attempt: int, delay_s: float | None
) -> None:
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = retry_delay_s(attempt, httpx.Response(status, headers=named), 0)
    assert (found is None) == (delay_s is None)
    assert (delay_s or 0) <= (found or 0) <= (delay_s or 0) * 1.25


@pytest.mark.parametrize("trouble", [problem(503, "backlog_full", retry_after="0"), Answer(502, b"<html>"), HANG_UP])
async def test_what_may_pass_is_repeated_as_it_was(trouble: Answer) -> None:
    said = {"input": ["ä", "\ud800"]}  # the server names the text that has the lone surrogate
    async with scripted(trouble, trouble, FINE) as server, Transport(server.url) as transport:
        assert await transport.json("POST", "/", said, headers={"Idempotency-Key": "k"}) == {"object": "fine"}
        assert [request.json() for request in server.requests] == [said] * 3
        assert {request.headers["idempotency-key"] for request in server.requests} == {"k"}
        assert {request.headers["content-type"] for request in server.requests} == {"application/json"}


@pytest.mark.parametrize("lost", [HANG_UP, Answer(502, b"<html>"), problem(503, "overloaded", retry_after="0")])
async def test_what_tells_a_secret_is_never_repeated(lost: Answer) -> None:
    async with scripted(lost, FINE) as server, Transport(server.url) as transport:
        with pytest.raises(EmbedqClientError) as raised:
            await transport.json("POST", "/v1/keys", {"name": "ops"}, once=True)
        assert len(server.requests) == 1
    assert (raised.value.status or 0) == lost.status


@pytest.mark.parametrize("gone", [problem(404, "dataset_not_found"), problem(410, "task_expired")])
@pytest.mark.parametrize("lost", [HANG_UP, problem(503, "redis_unavailable", retry_after="0")])
async def test_what_a_lost_deletion_has_deleted_is_not_missed(lost: Answer, gone: Answer) -> None:
    async with scripted(lost, gone) as server, Transport(server.url) as transport:
        assert (await transport.call("DELETE", "/v1/datasets/a")).status_code == gone.status


@pytest.mark.parametrize(
    ("before", "gone"),
    [
        (problem(429, "rate_limited", retry_after="0"), problem(404, "dataset_not_found")),
        # A proxy that finds no server has deleted nothing.
        (Answer(502, b"<html>Bad gateway</html>"), Answer(404, b"<html>No back end</html>")),
        (Answer(502, b"<html>Bad gateway</html>"), problem(404, "route_not_found")),
    ],
)
async def test_what_no_deletion_has_deleted_is_missed(before: Answer, gone: Answer) -> None:
    async with scripted(before, gone) as server, Transport(server.url) as transport:
        with pytest.raises(NotFoundError):
            await transport.call("DELETE", "/v1/datasets/a")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(400, "empty_input", param="input[3]"), RefusedError),
        (problem(401, "invalid_api_key"), NotAuthenticatedError),
        (problem(404, "task_not_found"), NotFoundError),
        (problem(410, "task_expired"), NotFoundError),
        (problem(429, "key_limit", x_should_retry="false"), RefusedError),
        (problem(503, "storage_full", x_should_retry="false"), UnavailableError),
        (problem(503, "backlog_full", retry_after="100"), UnavailableError),  # longer than the caller's time
    ],
)
async def test_what_will_not_pass_is_raised_at_once(answer: Answer, kind: type[EmbedqClientError]) -> None:
    async with scripted(answer) as server, Transport(server.url) as transport:
        with pytest.raises(kind) as raised:
            await transport.call("GET", PATH, timeout_s=20)
        assert len(server.requests) == 1
    assert type(raised.value) is kind
    said = answer.body["error"]
    assert (raised.value.status, raised.value.code, raised.value.param) == (answer.status, said["code"], said["param"])
    assert raised.value.message == "Text."


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[1]", b'{"error": "TEI"}', b'{"error": {}}'])
@pytest.mark.parametrize("status", [200, 418])
async def test_an_answer_in_foreign_words_is_an_error(body: bytes, status: int) -> None:
    async with scripted(Answer(status, body, {"x-request-id": "r-1"})) as server, Transport(server.url) as transport:
        with pytest.raises(RefusedError, match="embedq server") as raised:
            await transport.json("GET", PATH, timeout_s=20)
    assert (raised.value.code, raised.value.request_id) == ("unexpected_answer", "r-1")


async def test_a_server_that_never_was_there_is_given_up_soon_and_its_password_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_CONTACT_S", 0.05)
    async with scripted(FINE) as server:
        address = server.url
    delays: list[float] = []
    withheld = address.replace("//", "//user:hunter2@")
    async with Transport(withheld, on_retry=lambda _, delay_s: delays.append(delay_s)) as transport:
        with pytest.raises(UnreachableError, match=f"No answer from {address}") as raised:
            await transport.call("GET", PATH, timeout_s=600)
    assert "hunter2" not in str(raised.value)
    # 1 + 2 + 4 + 8 + 16 ms is what fits into 50 ms; patience with a server that answered before would be fifteen.
    assert len(delays) <= 5


@pytest.mark.parametrize(
    ("wait_s", "timeout_s", "query"), [(55, 600, "wait=55"), (55, 20, "wait=18"), (55, 0.5, "wait=1"), (0, 9, "")]
)
async def test_the_server_is_asked_to_answer_before_the_client_gives_up(
    wait_s: float, timeout_s: float, query: str
) -> None:
    async with scripted(FINE) as server, Transport(server.url) as transport:
        await transport.call("GET", "/", wait_s=wait_s, timeout_s=timeout_s)
        assert server.requests[0].target.partition("?")[2] == query


@pytest.mark.parametrize("below", ["", "/", "/v1", "/v1/"])
async def test_the_key_travels_in_the_header_only(below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: pytest.fail("http:// needs none"))
    async with scripted(FINE) as server, Transport(server.url + below, api_key="secret\n") as transport:
        await transport.call("GET", PATH)
        assert server.requests[0].headers["authorization"] == "Bearer secret"
        assert server.requests[0].target == PATH  # the address may be that of OpenAI's clients


@pytest.mark.parametrize("key", ["sécret", "sec\nret", "sec\x00ret"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        Transport("http://127.0.0.1:9", api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
def test_what_would_reach_another_route_is_no_name(name: str) -> None:
    assert route("keys", "a/../b?x#y", "purge") == "/v1/keys/a%2F..%2Fb%3Fx%23y/purge"
    with pytest.raises(RefusedError, match="no id and no name"):
        route("keys", name, "purge")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_it_may_be_used_in_one_loop_after_the_other(elsewhere: Scripted) -> None:
    elsewhere.answers = [FINE]
    transport = Transport(elsewhere.url)
    for _ in range(3):
        assert asyncio.run(transport.json("GET", PATH)) == {"object": "fine"}
    del transport
    gc.collect()  # here, where the warning is expected
