"""What one API key feels of the others: a loud neighbour, and ten keys that share the model's bulk work."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from api.keys_command import create
from bench.faults.rig import Rig
from bench.load.plan import Load, LoadResult
from bench.load.run import Running, run_raw
from stack.testing import wait_until
from worker_config.settings import load_settings

_SHARE_PER_S = 20.0
"""The limit of each of the two keys: a twentieth of what the model does in a second."""
_LOUD_TIMES = 20
_KNOWN_AFTER_S = 1.0
"""Every process of the API knows a new key then."""
_TOO_MANY_PER_S = 600
_KEYS = 10
_WORDS = (4, 8, 16, 32, 64)
_TEXTS_OF_A_TASK = 2_000
_BACKLOG_WORDS = 24_000
"""Of each key: more than its part of what the model does while it is watched."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what was measured, its values, and what it should be. `value` is the middle of `values`."""

    title: str
    unit: str
    values: Sequence[float]
    target: str

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)


class Tenants:
    """A service with keys: an administrator's, and those that it makes."""

    def __init__(self, rig: Rig) -> None:
        self._base = rig.api.base_url
        settings = load_settings(redis_url=rig.roles.redis_url)
        self._admin = _as_headers(asyncio.run(create(settings, {"name": "operator"})))
        wait_until(self._is_known, message="the first key")

    def _is_known(self) -> bool:
        name: str = httpx.get(f"{self._base}/v1/key", headers=self._admin).json().get("name")
        return name == "operator"

    def make(self, name: str, **fields: Any) -> dict[str, str]:
        """A new key, as the headers of a call."""
        answer = httpx.post(f"{self._base}/v1/keys", json={"name": name, **fields}, headers=self._admin)
        assert answer.is_success, answer.text
        return _as_headers(answer.json())

    def load(self, key: Mapping[str, str], rate_per_s: float, seconds: float, name: str) -> Load:
        """Queries of one key at a rate, no text twice."""
        count = int(rate_per_s * seconds) + 1
        bodies = [json.dumps({"input": f"{name} number {n} of eight words in all"}) for n in range(count)]
        return Load(
            f"{self._base}/v1/embeddings", bodies, seconds=seconds, rate_per_s=rate_per_s, headers=key, patience_s=30
        )

    def bulk(self, name: str, *, words: int, tasks: int, backlog_words: int = _BACKLOG_WORDS) -> "BulkCaller":
        """A new key that submits bulk work."""
        http = httpx.Client(base_url=self._base, headers=self.make(name), timeout=60)
        return BulkCaller(http, name, words, tasks, backlog_words)


def _as_headers(key: Mapping[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {key['key']}"}


class BulkCaller:
    """One key's bulk work: so many tasks at a time, of texts with so many words. A context manager."""

    def __init__(self, http: httpx.Client, name: str, words: int, tasks: int, backlog_words: int) -> None:
        self._http = http
        self._name = name
        self._words = words
        self._tasks = tasks
        self._backlog_words = backlog_words
        self._cost = len(self._text(0, 0)) / 4

    def submit(self, number: int) -> None:
        """More than is done while somebody looks; `number`: a new one each time."""
        texts = [self._text(number, n) for n in range(self._backlog_words // self._words)]
        for task in range(self._tasks):
            own = texts[task :: self._tasks]
            for begin in range(0, len(own), _TEXTS_OF_A_TASK):
                body = {"input": own[begin : begin + _TEXTS_OF_A_TASK], "lane": "bulk"}
                answer = self._http.post("/v1/tasks", json=body)
                assert answer.status_code == httpx.codes.ACCEPTED, answer.text

    def served(self) -> float:
        """The cost of the texts that have a vector: a quarter of their bytes, as the ledger counts it."""
        return self._cost * sum(int(each["counts"]["completed"]) for each in self._listed())

    def delete(self) -> None:
        """Everything that it has."""
        for each in self._listed():
            self._http.delete(f"/v1/tasks/{each['id']}").raise_for_status()

    def _listed(self) -> list[dict[str, Any]]:
        page = self._http.get("/v1/tasks?limit=100").raise_for_status().json()
        assert not page["has_more"]
        return list(page["data"])

    def _text(self, number: int, n: int) -> str:
        return " ".join([f"{self._name}-{number}-{n:06}", *["word"] * (self._words - 1)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()
        self._http.close()


def loud_neighbour(rig: Rig, rounds: int, seconds: float) -> list[Figure]:
    """The quiet key's p99 alone and beside a key at twenty times its limit, by turns."""
    tenants = Tenants(rig)
    quiet = tenants.make("quiet", limits={"requests_per_second": 2 * _SHARE_PER_S})
    loud = tenants.make("loud", limits={"requests_per_second": _SHARE_PER_S})
    time.sleep(_KNOWN_AFTER_S)
    alone: list[LoadResult] = []
    beside: list[LoadResult] = []
    noise: list[LoadResult] = []
    for number in range(rounds):
        alone.append(run_raw(tenants.load(quiet, _SHARE_PER_S, seconds, f"alone {number}")))
        flood = Running(tenants.load(loud, _LOUD_TIMES * _SHARE_PER_S, seconds + 2, f"flood {number}"))
        try:
            time.sleep(1)
            beside.append(run_raw(tenants.load(quiet, _SHARE_PER_S, seconds, f"beside {number}")))
        except BaseException:
            flood.stop()
            raise
        noise.append(flood.result())
    refused = [each.errors for each in beside]
    ratios = [after.p99_ms / before.p99_ms for before, after in zip(alone, beside, strict=True)]
    served = [each.rate_per_s for each in noise]
    return [
        Figure("a quiet key alone: p99 of its queries", "ms", [each.p99_ms for each in alone], ""),
        Figure("beside a key at 20 times its limit: p99", "ms", [each.p99_ms for each in beside], ""),
        Figure("p99 beside it, of p99 alone", "times", ratios, "at most 1.3"),
        Figure(f"queries of the quiet key that were refused, of {_SHARE_PER_S * seconds:g}", "", refused, "0"),
        Figure(f"queries of the loud key that were served; its limit is {_SHARE_PER_S:g}", "/s", served, ""),
    ]


def ten_keys(rig: Rig, rounds: int, seconds: float) -> list[Figure]:
    """Jain's index of the cost that each of ten keys gets, with texts and tasks of very different sizes."""
    tenants = Tenants(rig)
    indices, least = [], []
    with ExitStack() as stack:
        callers = [
            stack.enter_context(tenants.bulk(f"bulk-{n}", words=_WORDS[n % len(_WORDS)], tasks=1 + 3 * (n % 4)))
            for n in range(_KEYS)
        ]
        time.sleep(_KNOWN_AFTER_S)
        for number in range(rounds):
            for caller in callers:
                caller.submit(number)
            wait_until(lambda: all(caller.served() for caller in callers), timeout_s=60, message="work of every key")
            before = [caller.served() for caller in callers]
            time.sleep(seconds)
            costs = [caller.served() - start for caller, start in zip(callers, before, strict=True)]
            indices.append(sum(costs) ** 2 / (len(costs) * sum(cost * cost for cost in costs)))
            least.append(min(costs) * len(costs) / sum(costs))
            for caller in callers:
                caller.delete()
    return [
        Figure("ten keys of bulk work: Jain's index of the cost served", "", indices, "at least 0.95"),
        Figure("the least that one of them got, of a tenth", "", least, ""),
    ]


def both_lanes(rig: Rig, rounds: int, seconds: float) -> list[Figure]:
    """Neither lane starves: queries beside saturating bulk work, and bulk work beside more queries than fit."""
    tenants = Tenants(rig)
    queries = tenants.make("queries")
    latencies, shares = [], []
    with tenants.bulk("bulk", words=16, tasks=8, backlog_words=10 * _BACKLOG_WORDS) as caller:
        time.sleep(_KNOWN_AFTER_S)
        for number in range(min(rounds, 3)):
            caller.submit(number)
            wait_until(caller.served, timeout_s=60, message="bulk work")
            latencies.append(run_raw(tenants.load(queries, 10, seconds, f"few {number}")).p99_ms)
            flood = Running(tenants.load(queries, _TOO_MANY_PER_S, 3 * seconds + 1, f"many {number}"))
            try:
                time.sleep(1)
                before, began = caller.served(), time.monotonic()
                time.sleep(3 * seconds - 1)  # bulk work is done in claims of seconds
                shares.append((caller.served() - before) / (time.monotonic() - began))
            except BaseException:
                flood.stop()
                raise
            flood.result()
            caller.delete()
    return [
        Figure("queries at 10/s beside saturating bulk work: p99", "ms", latencies, ""),
        Figure(f"bulk work beside {_TOO_MANY_PER_S} queries a second: cost served", "tokens/s", shares, "above 0"),
    ]


SCENARIOS: Mapping[str, Callable[[Rig, int, float], list[Figure]]] = {
    "loud-neighbour": loud_neighbour,
    "ten-keys": ten_keys,
    "both-lanes": both_lanes,
}


def render(figures: Sequence[Figure]) -> str:
    """Markdown."""
    rows = [("figure", "median (least to most)", "target"), ("---", "---:", "---")]
    rows += [(each.title, _shown(each), each.target) for each in figures]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _shown(figure: Figure) -> str:
    low, high = min(figure.values), max(figure.values)
    spread = "" if low == high else f" ({_digits(low)} to {_digits(high)})"
    return f"{_digits(figure.value)}{spread} {figure.unit}".strip()


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def load(path: Path) -> dict[str, list[Figure]]:
    """Figures of earlier runs by scenario."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {name: [Figure(**each) for each in figures] for name, figures in found.items()}


def save(path: Path, figures: Mapping[str, Sequence[Figure]]) -> None:
    """Inverse of `load`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {name: [asdict(figure) for figure in each] for name, each in figures.items()}
    path.write_text(json.dumps(found, indent=1) + "\n")
