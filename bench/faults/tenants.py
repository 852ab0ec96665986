"""What one API key feels of a loud neighbour."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from api.keys_command import create
from bench import load
from bench.faults.rig import Rig
from bench.load import Load
from bench.report import shown_spread
from tests.processes import wait_until
from worker_config.settings import load_settings

_SHARE_PER_S = 20.0
"""The limit of each of the two keys: a twentieth of what the model does in a second."""
_LOUD_TIMES = 20


def _key(rig: Rig, name: str, **fields: Any) -> dict[str, str]:
    """A new key, as the headers of a call, when the API knows it."""
    made = asyncio.run(create(load_settings(redis_url=rig.roles.redis_url), {"name": name, **fields}))
    headers = {"Authorization": f"Bearer {made['key']}"}
    url = f"{rig.api.base_url}/v1/key"
    wait_until(lambda: httpx.get(url, headers=headers).json().get("name") == name, message="a key")
    return headers


def loud_neighbour(rig: Rig, rounds: int, seconds: float) -> list[list[str]]:
    """The quiet key's p99 alone and beside a key at twenty times its limit, by turns."""
    quiet = _key(rig, "quiet", limits={"requests_per_second": 2 * _SHARE_PER_S})
    loud = _key(rig, "loud", limits={"requests_per_second": _SHARE_PER_S})

    def queries(key: Mapping[str, str], rate_per_s: float, lasting_s: float, name: str) -> Load:
        bodies = [
            json.dumps({"input": f"{name} number {n} of eight words"}) for n in range(int(rate_per_s * lasting_s))
        ]
        url = f"{rig.api.base_url}/v1/embeddings"
        return Load(url, bodies, seconds=lasting_s, rate_per_s=rate_per_s, headers=key, patience_s=30)

    alone, beside, noise = [], [], []
    for number in range(rounds):
        alone.append(load.run(queries(quiet, _SHARE_PER_S, seconds, f"alone {number}")))
        flood = load.start(queries(loud, _LOUD_TIMES * _SHARE_PER_S, seconds + 2, f"flood {number}"))
        time.sleep(1)
        beside.append(load.run(queries(quiet, _SHARE_PER_S, seconds, f"beside {number}")))
        noise.append(flood.result())
    p99_ms = [[each.percentile(99) for each in results] for results in (alone, beside)]
    ratios = [after / before for before, after in zip(*p99_ms, strict=True)]
    refused, served = [each.errors for each in beside], [each.rate_per_s for each in noise]
    return [
        ["a quiet key alone: p99 of its queries, ms", shown_spread(p99_ms[0]), ""],
        ["beside a key at 20 times its limit: p99, ms", shown_spread(p99_ms[1]), ""],
        ["p99 beside it, of p99 alone", shown_spread(ratios), "at most 1.3"],
        [f"queries of the quiet key that were refused, of {_SHARE_PER_S * seconds:g}", shown_spread(refused), "0"],
        [f"queries of the loud key that were served; its limit is {_SHARE_PER_S:g}, /s", shown_spread(served), ""],
    ]
