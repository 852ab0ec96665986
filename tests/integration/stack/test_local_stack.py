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
from tests.thorough import some

MODEL, OTHER = "sentence-transformers/all-MiniLM-L6-v2", "other/model"
ROLES = {"redis-server": "redis", "tasks.worker": "worker", "tasks.ingestion": "documents-worker", "-m api": "api"}
"""A part of a command, and what it is."""


class LocalStack(Process):
    """The command behind `embedq up`, on a free port."""

    def __init__(self, folder: Path, *arguments: str, **settings: Any) -> None:
        # -P: no fork of a process that may ignore other signals than this one.
        command = [sys.executable, "-P", "-m", "stack", "--port", "0", "--data", str(folder / "data"), *arguments]
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
        roles: dict[str, psutil.Process] = {}
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just died
                command = " ".join(child.cmdline())
                roles |= {name: child for mark, name in ROLES.items() if mark in command}
        return roles

    def family(self) -> list[psutil.Process]:
        return list(psutil.Process(self.pid).children(recursive=True))

    def post(self, path: str, **body: Any) -> Any:
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=PATIENCE_S)
        answer.raise_for_status()
        return answer.json()


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


def test_it_serves_several_models_until_it_is_stopped(make_stack: Callable[..., LocalStack]) -> None:
    stack = make_stack("--model", MODEL, "--model", OTHER, "--workers", "2").start()
    family = stack.family()
    assert (stack.folder / "data" / "redis.sock").is_socket()

    for model in (MODEL, OTHER):
        assert len(stack.post("/v1/embeddings", model=model, input="a text")["data"][0]["embedding"]) == 384
    ready = httpx.get(f"{stack.url}/health/ready").json
    wait_until(lambda: ready()["workers"] == {MODEL: 2, OTHER: 2}, message="all workers")
    wait_until(lambda: main(["doctor", "--url", stack.url]) == 0, message="a doctor who is content with its Redis too")
    assert stack.stdout_file.read_text() == f"ready {stack.url}\nconsole {stack.url}/console\n"
    names = {line.split(" ", 1)[0] for line in stack.log().splitlines()}
    assert {"documents-worker", "api", "redis", *(f"worker-{number}" for number in range(1, 5))} <= names

    stack.send(signal.SIGTERM)
    assert stack.wait() == 0
    assert gone(family)
    log = stack.log()
    assert log.index("Finished server process") < log.index("Redis is now ready to exit"), "who asks stops first"


@pytest.mark.parametrize("role", some(ROLES.values(), "worker"))
def test_the_end_of_one_ends_all(make_stack: Callable[..., LocalStack], role: str) -> None:
    stack = make_stack().start()
    family = stack.family()
    stack.roles()[role].kill()
    assert stack.wait() == 1
    assert f"{role} ended by SIGKILL; all others were stopped" in stack.log().splitlines()[-1]
    wait_until(lambda: gone(family), message="orphans are left")


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
    make_stack: Callable[..., LocalStack], capsys: pytest.CaptureFixture[str]
) -> None:
    stack = make_stack(log_format="json", anything="unknown")
    file = stack.folder / "data" / "redis-url"
    file.parent.mkdir()
    file.write_text("of a stack that was killed")
    file.chmod(0o644)
    stack.start()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    path = f"/v1/tasks/{stack.post('/v1/tasks', input=['one', 'two'])['id']}"
    httpx.get(f"{stack.url}{path}", params={"wait": 20}, timeout=PATIENCE_S)
    result = httpx.get(f"{stack.url}{path}/result").json()
    assert len(result["data"]) == 2
    family = stack.family()

    stack.kill()
    wait_until(lambda: gone(family), message="orphans are left")
    stack.start()

    assert httpx.get(f"{stack.url}{path}/result").json() == result
    logged = [json.loads(line) for line in stack.log().splitlines()]
    assert {line["role"] for line in logged} == {"stack", *ROLES.values()}

    # Whoever owns the data makes the first key.
    assert main(["keys", "create", "ops", "--data", str(file.parent)]) == 0
    headers = {"x-api-key": capsys.readouterr().out.strip()}
    closed = lambda: httpx.get(f"{stack.url}/v1/key").status_code == 401  # noqa: E731
    wait_until(closed, message="the key is known within a second")
    assert "admin" in httpx.get(f"{stack.url}/v1/key", headers=headers).json()["scopes"]
    stack.stop()
    assert not file.exists()


def test_a_redis_that_is_named_is_used_and_the_folder_is_one_stack_s(
    make_stack: Callable[..., LocalStack], redis_url: str, redis_client: "redis.Redis"
) -> None:
    first, second = make_stack(redis_url=redis_url).start(), make_stack()
    second.launch()
    assert second.wait() == 78
    assert f"Another local stack (pid {first.pid}) uses" in second.log()

    assert first.post("/v1/embeddings", input="a text")["data"]
    assert "redis" not in first.roles()
    assert redis_client.exists("eq:models")
    first.stop()

    redis_client.set("eq:schema", 999)  # no restart can mend this
    first.launch()
    assert first.wait() == 78
    assert "cannot run" in first.log().splitlines()[-1]
    assert "schema 999" in first.log().splitlines()[-1]


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
