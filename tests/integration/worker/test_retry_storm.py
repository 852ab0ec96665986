"""Clients that give up and try again pay for their work once: OpenAI's own client, a real web tier, a real worker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import re
import signal

import httpx

from tests.heavy import openai
from tests.ledger_client import LedgerClient
from tests.processes import ApiProcess, Roles, wait_until
from worker_config.settings import DEFAULT_MODEL

CLIENTS = 16
TEXTS = 8
WORDS = 10
ONE_ROUND = CLIENTS * TEXTS * (WORDS + len(["[CLS]", "[SEP]"]))
"""Tokens. All texts have as many, so that no padding depends on who shares a pass with whom."""


def texts(client: int) -> list[str]:
    return [f"client {client} text {number} " + "word " * (WORDS - 4) for number in range(TEXTS)]


async def storm(base_url: str) -> list[openai.types.CreateEmbeddingResponse | BaseException]:
    # Half of the timeout is how long the web tier lets such a client wait.
    async with openai.AsyncOpenAI(base_url=base_url, api_key="any", timeout=3, max_retries=2) as client:
        calls = (client.embeddings.create(model=DEFAULT_MODEL, input=texts(number)) for number in range(CLIENTS))
        return await asyncio.gather(*calls, return_exceptions=True)


def answers(api: ApiProcess, status: str = r"\d+") -> int:
    series = rf'^embedq_http_requests_total{{method="POST",route="/v1/embeddings",status="{status}"}} (\S+)'
    counts = re.findall(series, httpx.get(f"{api.base_url}/metrics").text, re.MULTILINE)
    return int(sum(float(count) for count in counts))


def test_clients_that_time_out_and_retry_twice_cost_one_round_of_work(roles: Roles, client: LedgerClient) -> None:
    # A lease that outlasts the test: the worker is stopped in the middle, and a lost claim is done again by right.
    worker = roles.worker(fake_tokens_per_s=4000, lease_s=120)
    api = roles.api()
    api.wait_ready()
    child = worker.child_pid
    before = client.counter("padded_tokens")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        os.kill(child, signal.SIGSTOP)
        try:
            clients = pool.submit(asyncio.run, storm(api.base_url))
            wait_until(lambda: answers(api, "503") >= CLIENTS, message="the first attempts")
            os.kill(child, signal.SIGCONT)
            wait_until(lambda: client.overview().leases, message="work under way")
            os.kill(child, signal.SIGSTOP)
            wait_until(lambda: answers(api) >= 2 * CLIENTS, message="the second attempts")
        finally:
            os.kill(child, signal.SIGCONT)
        outcomes = clients.result()

    wait_until(lambda: answers(api, "503") > CLIENTS * 3 / 2, message="hardly anybody had to try twice")
    wait_until(lambda: client.counter("committed_items") >= CLIENTS * TEXTS, message="the end of the work")
    assert client.counter("committed_items") == CLIENTS * TEXTS
    wait_until(
        lambda: client.counter("padded_tokens") - before >= ONE_ROUND, message="a heartbeat that tells of all work"
    )
    assert client.counter("padded_tokens") - before <= 1.1 * ONE_ROUND
    served = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(served) > CLIENTS / 2, outcomes
    assert {len(outcome.data) for outcome in served} == {TEXTS}
