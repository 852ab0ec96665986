"""`python -m stack`, behind `embedq up`: Redis, workers and web tier of one machine, in the foreground.

Nothing is started anew. What ends, ends all; restarts are the work of Compose and Kubernetes.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from stack.data_folder import locked, remove_address, write_address
from stack.errors import StackError
from stack.ports import body_of, free_port, require_free
from stack.processes import (
    OWN_NAME,
    Child,
    Log,
    how_it_ended,
    message_of,
    note_signals,
    stop,
    wait_for_the_first_end,
)
from stack.redis_server import (
    answers_ping,
    choose_endpoint,
    default_maxmemory_bytes,
    find_server,
    server_command,
    version,
)
from worker_config import setting_types
from worker_config.data_folder import STORAGE
from worker_config.logs import write_refusal
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE
from worker_config.settings import Settings, SettingsError, bare_environment, child_environment, load_settings

DEFAULT_FOLDER = Path(".embedq")
_PING_EVERY_S = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the stack until it is told to stop, or until one of its processes ends.

    Returns:
        0 after a signal; 78 if a process says that it cannot run like this; 1 if one ended otherwise.
    """
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(OWN_NAME)
        _require_hidden(options.data, settings)
        port = options.port if options.port is not None else settings.port
        with locked(options.data) as lock:
            try:
                stack = _Stack(settings, options, port or free_port(), lock, note_signals())
                require_free(stack.host, stack.port)
                return stack.run()
            finally:
                remove_address(options.data)
    except (SettingsError, StackError) as error:
        write_refusal("embedq", str(error))
        return CONFIGURATION_EXIT_CODE


@dataclass(slots=True)
class _Stack:
    settings: Settings
    options: argparse.Namespace
    port: int
    lock: int
    signals: list[int]

    def run(self) -> int:
        log = Log(sys.stderr, self.settings.log_format)
        redis, workers, api = list[Child](), list[Child](), list[Child]()
        try:
            ended = self._start(log, redis, workers, api) or wait_for_the_first_end(
                [*redis, *workers, *api], self.signals, is_ready=self._is_ready, announce=self._announce
            )
        finally:  # who asks first, then who works, and last who keeps
            for group in (api, workers, redis):
                stop(group, self.signals)
        if ended is None:
            return 0
        cannot_run = ended.exit_code == CONFIGURATION_EXIT_CODE
        why = f"cannot run: {message_of(ended.last_line)}" if cannot_run else f"ended {how_it_ended(ended)}"
        log.write(OWN_NAME, f"{ended.name} {why}" + ("" if cannot_run else "; all others were stopped"))
        return CONFIGURATION_EXIT_CODE if cannot_run else 1

    def _start(self, log: Log, redis: list[Child], workers: list[Child], api: list[Child]) -> Child | None:
        """Starts all; a Redis that has ended before it answered."""
        data: Path = self.options.data
        models = self._models
        own = not self.settings.names_redis
        program, endpoint = (find_server(), choose_endpoint(data)) if own else (None, None)
        shown = "{}.{} of {}".format(*version(program), program) if program else f"at {self.settings.redis_address}"
        log.write(OWN_NAME, f"Redis {shown}; data in {data}; {', '.join(models)}")
        url = self.settings.redis_url
        if program and endpoint:
            url, folder = endpoint.url, data / "redis"
            folder.mkdir(mode=0o700, exist_ok=True)  # it holds what people submit
            command = server_command(program, endpoint, folder, maxmemory_bytes=default_maxmemory_bytes())
            # It holds the lock of the data folder as long as it runs.
            quiet = ["--loglevel", "warning"]
            with bare_environment():
                redis.append(Child("redis", [*command, *quiet], child_environment(), log, keeps_open=[self.lock]))
            while not answers_ping(endpoint) and not self.signals:
                if redis[0].exit_code is not None:
                    return redis[0]
                time.sleep(_PING_EVERY_S)
        write_address(data, url)
        shared: dict[str, object] = {"redis_url": url}
        if "storage_url" not in self.settings.model_fields_set:
            shared["storage_url"] = (data / STORAGE).resolve()

        def python(name: str, module: str, **settings: object) -> Child:
            return Child(name, [sys.executable, "-m", module], child_environment(**shared, **settings), log)

        def worker(name: str, module: str, **settings: object) -> None:
            run_dir = (data / "run").resolve() / name
            run_dir.mkdir(parents=True, exist_ok=True)
            workers.append(python(name, module, run_dir=run_dir, **settings))

        numbered = [model for model in models for _ in range(self.options.workers)]
        for number, model in enumerate(numbered, 1):
            worker("worker" if len(numbered) == 1 else f"worker-{number}", "tasks.worker", model=model)
        worker("documents-worker", "tasks.ingestion")
        api.append(python("api", "api", port=self.port, model=models[0]))
        return None

    @property
    def _models(self) -> list[str]:
        return self.options.model or [self.settings.model]

    @property
    def host(self) -> str:
        """Where this machine reaches the web tier."""
        bound = self.settings.host
        return "127.0.0.1" if bound in {"0.0.0.0", "::", "localhost"} else bound  # noqa: S104 - compared, not bound

    def _is_ready(self) -> bool:
        body = body_of(self.host, self.port, "/health/ready")
        return body is not None and len(orjson.loads(body)["workers"]) >= len(set(self._models))

    def _announce(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"http://{host}:{self.port}"
        with contextlib.suppress(BrokenPipeError):  # the reader is gone: no reason to stop
            os.write(sys.stdout.fileno(), f"ready {url}\nconsole {url}/console\n".encode())  # nothing fails at exit


def _require_hidden(data: Path, settings: Settings) -> None:
    if any(setting_types.shows(root, str(data)) for root in settings.ingest_roots):
        raise StackError(
            f"EMBEDQ_INGEST_ROOTS holds {data}, where Redis and the storage are: every caller could read what others "
            "have sent. Choose another folder for the data (--data), or other roots."
        )


def _parser() -> argparse.ArgumentParser:
    """`embedq up` has the same options, with their help and checks."""
    parser = argparse.ArgumentParser(prog="embedq up")
    parser.add_argument("--port", type=int)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--model", action="append")
    return parser


if __name__ == "__main__":
    sys.exit(main())
