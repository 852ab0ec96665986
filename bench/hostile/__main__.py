"""`make hostile`: thousands of hostile requests to a whole service with the fake encoder; exit code 1 if one did harm.

It fails if a request was answered with a 5xx or not at all, if a process grew by more than 10 % after the first quarter
of the requests, if a query is not answered afterwards, or if anything is left after all that the key owns is deleted.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import httpx

from bench.hostile.requests import Attacker
from bench.hostile.trial import Outcome, Traces, clean_up, memory_bytes, send_all, wait_clean
from stack.testing import ApiProcess, RedisServer, Roles, wait_until

KEY = "key-of-the-attacker"
MAX_GROWTH = 0.10
_MIB = 2**20


def main() -> int:
    """Runs the trial and prints its tables; the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=24_000)
    options.add_argument("--seed", type=int, default=15)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", appendfsync="no").start()
        try:
            return _trial(server, Path(folder), chosen.requests, chosen.seed)
        finally:
            server.stop()


def _trial(server: RedisServer, folder: Path, count: int, seed: int) -> int:
    storage = folder / "storage"
    keys = f"attacker:{sha256(KEY.encode()).hexdigest()}"
    with Roles(folder, server.url) as roles, server.client() as redis_client:
        roles.worker(storage_url=storage)
        roles.documents(storage_url=storage)
        api = roles.api(storage_url=storage, api_keys=keys)
        api.wait_ready()
        with api.client() as client:
            client.headers["authorization"] = f"Bearer {KEY}"
            _warm_up(client)
            before = Traces.of(redis_client, storage)
            outcome, began = Outcome(), time.monotonic()
            attacker = Attacker(seed, KEY)
            asyncio.run(send_all(_port(api), attacker.requests(count // 4), outcome))
            early = memory_bytes(roles.processes)
            asyncio.run(send_all(_port(api), attacker.requests(count - count // 4), outcome))
            late = memory_bytes(roles.processes)
            took_s = time.monotonic() - began
            _query(client)
            deleted = clean_up(client)
        left = wait_clean(redis_client, storage, before, timeout_s=120)
    print(f"{took_s:.0f} s; deleted afterwards: {deleted}; left: {left or 'nothing'}\n")
    harm = _report(outcome) + _report_memory(early, late) + len(left)
    return 1 if harm else 0


def _warm_up(client: httpx.Client) -> None:
    """Has each role do what loads libraries or makes something for ever. A first search loads 50 MiB of pyarrow."""
    _query(client)
    body = {"source": {"documents": [{"id": "1", "text": "a"}]}, "sink": {"type": "dataset", "dataset": "warm"}}
    made = client.post("/v1/ingestions", json=body)
    path = f"/v1/ingestions/{made.json()['id']}"
    wait_until(lambda: client.get(path).json()["status"] == "completed", timeout_s=60)
    client.post("/v1/datasets/warm/search", json={"query": "a"}).raise_for_status()
    clean_up(client)


def _query(client: httpx.Client) -> None:
    status = client.post("/v1/embeddings", json={"input": "a good query"}).status_code
    if status != httpx.codes.OK:
        raise SystemExit(f"a good query was answered with {status}")


def _report(outcome: Outcome) -> int:
    """Prints what came of the requests; how many were answered with a 5xx or not at all."""
    print("| kind | requests | 2xx, 3xx | 4xx | 5xx | no answer |\n|---|---|---|---|---|---|")
    for row in outcome.rows():
        print("|", " | ".join(map(str, row)), "|")
    for request, answer in outcome.defects[:10]:
        print(f"\n5xx: {request.kind}: {request.data[:300]!r}\n  -> {answer!r}")
    for kind, count in outcome.unanswered.items():
        print(f"\nno answer: {kind}: {count}")
    return len(outcome.defects) + sum(outcome.unanswered.values())


def _report_memory(early: dict[str, int], late: dict[str, int]) -> int:
    """Prints the memory of the processes; how many have grown too much."""
    print("\n| process | MiB after a quarter | MiB at the end | change |\n|---|---|---|---|")
    growth = {name: late[name] / early[name] - 1 for name in early}
    for name, share in growth.items():
        print(f"| {name} | {early[name] / _MIB:.0f} | {late[name] / _MIB:.0f} | {share:+.1%} |")
    return sum(share > MAX_GROWTH for share in growth.values())


def _port(api: ApiProcess) -> int:
    return int(api.base_url.rpartition(":")[2])


if __name__ == "__main__":
    sys.exit(main())
