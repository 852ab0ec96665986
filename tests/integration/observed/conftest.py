"""A whole service that is observed: its logs are JSON, every request is in them, and a collector gets its traces."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.ledger.packed import record_of
from tests.collector import Collector, ReceivedSpan
from tests.key_leaks import leaked_keys
from tests.processes import ApiProcess, Process, RedisServer, Roles, WorkerProcess, wait_until

KEY = "key-of-somebody"
NAME = "somebody"
TEXT = "words-that-nobody-may-log"
SLOW_TOKENS_PER_S = 500


@dataclass(frozen=True, slots=True)
class Observed:
    """The processes of a service, a client that has a key, and a collector."""

    api: ApiProcess
    worker: WorkerProcess
    documents: WorkerProcess
    client: httpx.Client
    redis: RedisServer
    collector: Collector

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.api, self.worker, self.documents

    def stored(self, task_id: str, field: str) -> str | None:
        """A field of a task's record in Redis; None: it has no value."""
        with self.redis.client() as connection:
            return record_of(connection.hget(f"eq:task:{task_id}", "s"))[field] or None

    def trace(self, trace_id: str, *names: str) -> list[ReceivedSpan]:
        """The spans of a trace, once it has these names, each as often as it is given.

        Each process sends its spans when it comes to it. So a test names those of every process that it looks at.
        """
        wanted = Counter(names)

        def complete() -> list[ReceivedSpan] | None:
            spans = self.collector.of(trace_id)
            return spans if wanted <= Counter(span.name for span in spans) else None

        return wait_until(complete, message=f"a trace has not all of {dict(wanted)}")


def new_trace(*, sampled: bool = True) -> tuple[str, dict[str, str]]:
    """The id of a trace that a caller begins, and the header that says so."""
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-0{int(sampled)}"}


@pytest.fixture(scope="module")
def observed(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observed")
    redis = start_redis(folder / "redis")
    keys = f"{NAME}:{sha256(KEY.encode()).hexdigest()}"
    try:
        with Collector() as collector, pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # a worker that is killed has sent its claim
            settings: dict[str, Any] = {"log_format": "json", "storage_url": folder / "storage"}
            with Roles(folder, redis.url) as roles:
                worker = roles.worker(fake_tokens_per_s=SLOW_TOKENS_PER_S, **settings)
                documents = roles.documents(**settings)
                api = roles.api(api_keys=keys, access_log="true", **settings)
                api.wait_ready()
                with api.client() as client:
                    client.headers["authorization"] = f"Bearer {KEY}"
                    yield Observed(api, worker, documents, client, redis, collector)
                    client.post("/v1/embeddings", json={"input": "the last one"}, headers=new_trace()[1])
                collector.silent = True  # the roles stop in time all the same
        with redis.client() as connection:
            assert leaked_keys(connection) == []
    finally:
        redis.stop()
