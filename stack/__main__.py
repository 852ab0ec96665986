"""`python -m stack`: the local stack in the foreground, behind `embedq up`."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stack.data_folder import locked, remove_address, write_address
from stack.errors import StackError
from stack.log import OWN_NAME, Log
from stack.ports import answers_ok, free_port, require_free
from stack.redis_server import choose_endpoint
from stack.roles import Places, Role, api_role, documents_role, redis_role, worker_roles
from stack.supervisor import Supervisor
from worker_config import forms
from worker_config.data_folder import STORAGE
from worker_config.logs import LogFormat, write_refusal
from worker_config.settings import CONFIGURATION_EXIT_CODE, Settings, SettingsError, load_settings

_LAST_PORT = 65_535
DEFAULT_FOLDER = Path(".embedq")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the stack until it is told to stop; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(OWN_NAME)
        _require_hidden(options.data, settings)
        port = _port(options.port if options.port is not None else settings.port)
        with locked(options.data) as lock:
            roles = _roles(settings, options.data, options.workers, port, lock)
            try:
                return _supervise(roles, _host(settings.host), port, settings.log_format)
            finally:
                remove_address(options.data)
    except (SettingsError, StackError) as error:
        write_refusal("embedq", str(error))
        return CONFIGURATION_EXIT_CODE


def _require_hidden(data: Path, settings: Settings) -> None:
    if any(forms.shows(root, str(data)) for root in settings.ingest_roots):
        raise StackError(
            f"EMBEDQ_INGEST_ROOTS holds {data}, where Redis and the storage are: every caller could read what others "
            "have sent. Choose another folder for the data (--data), or other roots."
        )


def _roles(settings: Settings, data: Path, workers: int, port: int, lock: int) -> list[Role]:
    roles = []
    redis_url = settings.redis_url
    if "redis_url" not in settings.model_fields_set:  # no Redis was named: start one
        endpoint = choose_endpoint(data)
        redis_url = endpoint.url
        roles.append(redis_role(endpoint, data / "redis", lock))
    write_address(data, redis_url)
    named = "storage_url" in settings.model_fields_set
    places = Places(redis_url, None if named else str((data / STORAGE).resolve()))
    run_dir = data / "run"
    return [*roles, *worker_roles(workers, places, run_dir), documents_role(places, run_dir), api_role(port, places)]


def _supervise(roles: list[Role], host: str, port: int, log_format: LogFormat) -> int:
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return Supervisor(
        roles,
        Log([role.name for role in roles], sys.stderr, log_format),
        is_ready=lambda: answers_ok(host, port, "/health/ready"),
        announce=lambda: _print(f"ready {url}\nconsole {url}/console\n"),
    ).run()


def _print(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader is gone: no reason to stop
        os.write(sys.stdout.fileno(), text.encode())  # unbuffered: nothing is left to fail at exit


def _port(wanted: int) -> int:
    if wanted == 0:
        return free_port()
    require_free(wanted)
    return wanted


def _host(bound: str) -> str:
    """Where this machine reaches a server that is bound to `bound`."""
    return "127.0.0.1" if bound in {"0.0.0.0", "::", "localhost"} else bound  # noqa: S104 - compared, not bound


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="embedq up", description="Redis, workers and web tier on this machine.")
    parser.add_argument(
        "--port", type=_port_number, help="of the web tier; 0 picks a free one (default: EMBEDQ_PORT or 8000)"
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="folder for all data (default: %(default)s)")
    parser.add_argument("--workers", type=_count, default=1, metavar="N", help="model workers (default: %(default)s)")
    return parser


def _port_number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"0 to {_LAST_PORT}")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
