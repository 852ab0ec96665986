"""Web pages of other origins: what a browser is told."""

from collections.abc import Callable

import httpx
import pytest

from api.cross_origin import EXPOSED
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp

PAGE, OTHER = "https://app.example.org", "https://elsewhere.example.org"
ASK = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def allowed(answer: httpx.Response) -> str | None:
    assert answer.headers["x-request-id"]
    origin: str | None = answer.headers.get("access-control-allow-origin")
    return origin


@pytest.fixture
def browser(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> httpx.Client:
    client = serve(cors_origins=PAGE).client
    client.headers["origin"] = PAGE
    return client


def test_by_default_no_page_may_call(client: httpx.Client) -> None:
    asked = client.options("/v1/embeddings", headers={"origin": PAGE, **ASK})

    assert (asked.status_code, allowed(asked)) == (405, None)
    assert allowed(client.get("/v1/models", headers={"origin": PAGE})) is None


def test_a_page_may_ask_call_and_read(browser: httpx.Client) -> None:
    asked = browser.options("/v1/embeddings", headers=ASK)
    answer = browser.post("/v1/tasks", json={"input": "one"})  # a shortcut
    task = browser.get(answer.headers["location"])

    assert (asked.status_code, allowed(asked)) == (200, PAGE)
    assert set(ASK["access-control-request-headers"].split(",")) <= set(
        asked.headers["access-control-allow-headers"].replace(" ", "").split(",")
    )
    assert "access-control-allow-credentials" not in asked.headers
    for found in (answer, task):
        assert allowed(found) == PAGE
        assert set(found.headers["access-control-expose-headers"].split(", ")) == set(EXPOSED)
        assert "Origin" in found.headers["vary"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/nothing", "/v1/tasks/task_x"])
def test_a_page_may_read_errors(browser: httpx.Client, path: str) -> None:
    assert allowed(browser.post(path, content=b"{")) == PAGE


def test_another_page_may_not(browser: httpx.Client) -> None:
    asked = browser.options("/v1/embeddings", headers={**ASK, "origin": OTHER})

    assert (asked.status_code, allowed(asked)) == (400, None)
    assert allowed(browser.get("/v1/models", headers={"origin": OTHER})) is None
