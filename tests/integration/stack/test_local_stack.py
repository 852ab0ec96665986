"""`python -m stack` with the real roles: Redis, a worker with the fake encoder, the web tier."""

import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest
import redis

from embedq.cli import main
from tests.processes import PATIENCE_S, Process, wait_until

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class LocalStack(Process):
    """The command behind `embedq up`, on a free port."""

    def __init__(self, folder: Path, *arguments: str, **settings: Any) -> None:
        command = [sys.executable, "-m", "stack", "--port", "0", "--data", str(folder / "data"), *arguments]
        super().__init__("stack", command, folder, **{"compute": "fake"} | settings)
        self.stdout_file = folder / "stdout"

    def start(self) -> Self:
        self.stdout_file.unlink(missing_ok=True)
        self.launch()
        self.wait_while_running(lambda: self.url, "saying that it is ready")
        return self

    @property
    def url(self) -> str:
        return self.stdout_file.read_text().removeprefix("ready ").partition("\n")[0]

    def roles(self) -> dict[str, psutil.Process]:
        """Its direct children by what they are."""
        marks = {
            "redis-server": "redis",
            "-m tasks.worker": "worker",
            "-m tasks.ingestion": "documents-worker",
            "-m api": "api",
        }
        roles: dict[str, psutil.Process] = {}
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just died
                command = " ".join(child.cmdline())
                roles |= {name: child for mark, name in marks.items() if mark in command}
        return roles

    def family(self) -> list[psutil.Process]:
        return list(psutil.Process(self.pid).children(recursive=True))

    def embed(self, text: str, model: str = MODEL) -> list[float]:
        answer = httpx.post(f"{self.url}/v1/embeddings", json={"model": model, "input": text}, timeout=PATIENCE_S)
        answer.raise_for_status()
        vector: list[float] = answer.json()["data"][0]["embedding"]
        return vector


@pytest.fixture
def make_stack(tmp_path: Path) -> Iterator[Callable[..., LocalStack]]:
    made: list[LocalStack] = []

    def make(*arguments: str, **settings: Any) -> LocalStack:
        made.append(LocalStack(tmp_path, *arguments, **settings))
        return made[-1]

    yield make
    for stack in made:
        stack.stop()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() for process in processes)


def test_it_serves_until_it_is_stopped(make_stack: Callable[..., LocalStack]) -> None:
    stack = make_stack("--workers", "2").start()
    family = stack.family()

    assert len(stack.embed("a text")) == 384
    ready = wait_until(lambda: _ready(stack.url, workers=2))
    assert ready["redis"] == "up"
    assert stack.stdout_file.read_text() == f"ready {stack.url}\nconsole {stack.url}/console\n"
    names = {line.split(" ", 1)[0] for line in stack.log().splitlines()}
    assert {"worker-1", "worker-2", "documents-worker", "api", "redis"} <= names

    stack.send(signal.SIGTERM)
    assert stack.wait() == 0
    assert gone(family)
    log = stack.log()
    assert log.index("Finished server process") < log.index("Redis is now ready to exit"), "who asks stops first"


@pytest.mark.parametrize("role", ["redis", "worker", "documents-worker", "api"])
def test_the_end_of_one_ends_all(make_stack: Callable[..., LocalStack], role: str) -> None:
    stack = make_stack().start()
    family = stack.family()
    stack.roles()[role].kill()
    assert stack.wait() == 1
    assert f"{role} ended by SIGKILL; all others were stopped" in stack.log().splitlines()[-1]
    wait_until(lambda: gone(family), message="orphans are left")


def test_several_models_are_served(make_stack: Callable[..., LocalStack]) -> None:
    stack = make_stack("--model", MODEL, "--model", "other/model").start()
    assert set(httpx.get(f"{stack.url}/health/ready").json()["workers"]) == {MODEL, "other/model"}
    assert [stack.embed("a text", model) != [] for model in (MODEL, "other/model")] == [True, True]
    assert f"{MODEL}, other/model" in stack.log().splitlines()[0]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_ends_it_unless_nohup_asked_otherwise(
    make_stack: Callable[..., LocalStack], ignored: bool
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        stack = make_stack()
        stack.launch()
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_until(lambda: stack.roles().keys() >= {"api"})
    os.killpg(stack.pid, signal.SIGHUP)
    os.killpg(stack.pid, signal.SIGINT if ignored else 0)  # what a terminal does: the whole group gets it
    assert stack.wait() == 0


def test_data_outlives_a_killed_stack_and_no_orphan_does_and_each_line_is_json(
    make_stack: Callable[..., LocalStack],
) -> None:
    stack = make_stack(log_format="json", anything="unknown").start()
    task = httpx.post(f"{stack.url}/v1/tasks", json={"input": ["one", "two"]}).json()["id"]
    httpx.get(f"{stack.url}/v1/tasks/{task}", params={"wait": 20}, timeout=PATIENCE_S)
    result = httpx.get(f"{stack.url}/v1/tasks/{task}/result").json()
    assert len(result["data"]) == 2
    family = stack.family()

    stack.kill()
    wait_until(lambda: gone(family), message="orphans are left")
    stack.start()

    assert httpx.get(f"{stack.url}/v1/tasks/{task}/result").json() == result
    logged = [json.loads(line) for line in stack.log().splitlines()]
    assert {line["role"] for line in logged} == {"stack", "redis", "worker", "documents-worker", "api"}


@pytest.mark.thorough
def test_whoever_owns_the_data_makes_the_first_key(
    make_stack: Callable[..., LocalStack], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("EMBEDQ_API_KEY", "EMBEDQ_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    stack = make_stack("--workers", "1")
    data = stack.folder / "data"
    file, command = data / "redis-url", ["keys", "create", "ops", "--data", str(data)]
    data.mkdir()
    file.write_text("of a stack that was killed")
    file.chmod(0o644)
    assert main(command) == 2, "this is no URL"
    stack.start()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert httpx.post(f"{stack.url}/v1/keys", json={"name": "mine"}).status_code == 403
    capsys.readouterr()

    assert main(command) == 0

    headers = {"x-api-key": capsys.readouterr().out.strip()}
    closed = lambda: httpx.get(f"{stack.url}/v1/key").status_code == 401  # noqa: E731
    wait_until(closed, message="the key is known within a second")
    assert "admin" in httpx.get(f"{stack.url}/v1/key", headers=headers).json()["scopes"]
    stack.stop()
    assert not file.exists()
    assert main(command) == 2


def test_a_second_stack_on_the_same_data_is_refused(make_stack: Callable[..., LocalStack], redis_url: str) -> None:
    first = make_stack(redis_url=redis_url)  # the lock is about the folder, whoever runs Redis
    first.launch()
    wait_until(lambda: "data in" in first.log())

    second = make_stack()
    second.launch()

    assert second.wait() == 78
    assert f"Another local stack (pid {first.pid}) uses" in second.log()


def test_a_redis_that_is_named_is_used(
    make_stack: Callable[..., LocalStack], redis_url: str, redis_client: "redis.Redis"
) -> None:
    stack = make_stack(redis_url=redis_url).start()

    assert stack.embed("a text")

    assert "redis" not in stack.roles()
    assert redis_client.exists("eq:models")
    stack.stop()  # before the key-leak check


def test_what_no_restart_can_mend_stops_everything(
    make_stack: Callable[..., LocalStack], redis_url: str, redis_client: "redis.Redis"
) -> None:
    redis_client.set("eq:schema", 999)
    stack = make_stack(redis_url=redis_url)
    stack.launch()

    assert stack.wait() == 78

    assert "cannot run" in stack.log().splitlines()[-1]
    assert "schema 999" in stack.log().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((), {"port": "many"}, "EMBEDQ_PORT=many"),
        (("--data", "/dev/null/x"), {}, "Not a directory. Choose another folder: --data."),
        (("--data", "data"), {"ingest_roots": "/"}, "where Redis and the storage are"),
    ],
)
def test_what_cannot_be_used_is_said_at_once(
    make_stack: Callable[..., LocalStack], arguments: tuple[str, ...], settings: dict[str, str], message: str
) -> None:
    stack = make_stack(*arguments, **settings)
    stack.launch()
    assert stack.wait() in {2, 78}
    assert message in stack.log()
    assert "Traceback" not in stack.log()


def _ready(url: str, *, workers: int) -> dict[str, Any] | None:
    body: dict[str, Any] = httpx.get(f"{url}/health/ready").json()
    return body if body.get("workers") == {MODEL: workers} else None
