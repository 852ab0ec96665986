"""Breaks the scripts by rule, and shows that the tests notice.

A mutant runs through the directed tests and, where they see nothing, through the walks.
"""

import importlib
import inspect
import multiprocessing
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.ledger.scripts import SCRIPTS, sha, source
from tests.processes import RedisServer
from tests.simulation.conftest import tested
from tests.simulation.thin_client import Ledger
from tests.simulation.walks import walk

SEEDS, STEPS = 12, 150
_CALL_S, _TEST_S, _WALK_S = 10, 20, 60
"""The first by the clock, for a script without end; the others of this process's processor, for a test without end."""
_LAST = "test_wake_up"
"""The tests in it take long."""
_NAMES = ("submit", "claim", "commit", "give_back", "cancel", "heartbeat", "overview", "list", "request_rate")
"""Scripts of records have tests of their own."""
_LISTED = (Path(__file__).parent / "equivalent.txt").read_text().splitlines()
EQUIVALENT = frozenset(line for line in _LISTED if not line.startswith("#"))
"""Mutants that change nothing that anybody could see, by name. The file says why."""
Rule = Callable[[str], Iterator[str]]


@dataclass(frozen=True)
class Mutant:
    """One line of a file, changed by a rule."""

    file: str
    line: int
    rule: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """It stays when lines move."""
        return f"{self.file}: {self.rule}: {self.old.strip()}" + (f" -> {self.new.strip()}" if self.new.strip() else "")

    @property
    def text(self) -> str:
        """The file with it."""
        lines = (SCRIPTS / self.file).read_text().split("\n")
        lines[self.line] = self.new
        return "\n".join(lines)


def swap(old: str, new: str) -> Rule:
    """One text instead of another, at each of its places."""

    def changed(code: str) -> Iterator[str]:
        for found in re.finditer(old, code):
            yield code[: found.start()] + new + code[found.end() :]

    return changed


def _without(pattern: str) -> Rule:
    def changed(code: str) -> Iterator[str]:
        if re.fullmatch(pattern, code.strip()):
            yield ""

    return changed


def _double(code: str) -> Iterator[str]:
    if found := re.fullmatch(r"local [A-Z_]+ = (\d+)", code.strip()):
        yield code.replace(f"= {found[1]}", f"= {2 * int(found[1])}")


RULES: dict[str, Rule] = {
    "step left out": _without(r"[a-z_]+\((?!.*function).*\)"),
    "assignment left out": _without(r"(?!local )[a-z_.\[\]A-Z', #+0-9()]+ = [^=]+"),
    "never": swap(r"(?<=if ).+?(?= then)", "false"),
    "always": swap(r"(?<=if ).+?(?= then)", "true"),
    "equal": swap(" == ", " ~= "),
    "unequal": swap(" ~= ", " == "),
    "at the edge": swap(r" <= ", " < "),
    "beyond the edge": swap(r" < ", " <= "),
    "at the upper edge": swap(r" >= ", " > "),
    "beyond the upper edge": swap(r" > ", " >= "),
    "plus": swap(r" \+ ", " - "),
    "minus": swap(r" - ", " + "),
    "and": swap(r" and ", " or "),
    "or": swap(r" or ", " and "),
    "not": swap(r"\bnot ", ""),
    "twice the number": _double,
}


def mutants() -> list[Mutant]:
    """All of them but those that are equivalent."""
    shared = sorted(f"shared/{path.name}" for path in SCRIPTS.glob("shared/*.lua") if path.stem != "records")
    found = [
        Mutant(file, number, rule, code, new)
        for file in (*sorted(f"{name}.lua" for name in _NAMES), *shared)
        for number, line in enumerate((SCRIPTS / file).read_text().split("\n"))
        for code in [line.split(" --", maxsplit=1)[0].rstrip()]
        for rule, change in RULES.items()
        for new in (() if line.startswith("--") else change(code))
    ]
    names = {mutant.name for mutant in found}
    assert names >= EQUIVALENT, f"these are not there any more: {EQUIVALENT - names}"
    return [mutant for mutant in found if mutant.name not in EQUIVALENT]


def directed_tests() -> list[Callable[[Ledger], None]]:
    """All tests here that need no more than a ledger."""
    names = sorted((path.stem for path in Path(__file__).parent.glob("test_*.py")), key=_LAST.__eq__)
    modules = [importlib.import_module(f"tests.simulation.{name}") for name in names if name != "test_walks"]
    return [
        test
        for module in modules
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["ledger"]
    ]


class _TookTooLongError(Exception):
    """A test or a walk under a broken script has no end."""


def _too_long(_: int, __: FrameType | None) -> None:
    raise _TookTooLongError


class Judge:
    """Runs the tests on mutants, on a Redis of its own."""

    def __init__(self, folder: Path) -> None:
        self._server, self._scripts = RedisServer(folder, unix_socket=True), folder / "lua"
        shutil.copytree(SCRIPTS, self._scripts)
        self._start()
        signal.signal(signal.SIGPROF, _too_long)
        self._tests = directed_tests()

    def close(self) -> None:
        """Stops its Redis."""
        self._server.stop()

    def killer(self, mutant: Mutant, seeds: int) -> str | None:
        """What noticed it; None: nothing."""
        (self._scripts / mutant.file).write_text(mutant.text)
        source.cache_clear()
        sha.cache_clear()
        try:
            return self._killer(seeds)
        finally:
            shutil.copy(SCRIPTS / mutant.file, self._scripts / mutant.file)

    def _killer(self, seeds: int) -> str | None:
        for test in self._tests:
            if error := self._error(lambda test=test: self._run(test), _TEST_S):  # type: ignore[misc]
                self._tests.remove(test)
                self._tests.insert(0, test)  # it is likely to notice the next one too
                return f"{test.__name__}: {error}"
        for seed in range(seeds):
            self._client.config_set("maxmemory", 0)
            if error := self._error(lambda seed=seed: walk(self._client, seed, STEPS, self._scripts), _WALK_S):  # type: ignore[misc]
                return f"walk {seed}: {error}"
        return None

    def _start(self) -> None:
        self._server.start()
        url = self._server.url
        self._client = redis.Redis.from_url(url, socket_timeout=_CALL_S, retry=Retry(NoBackoff(), 0))
        self._client.config_set("appendonly", "no")

    def _run(self, test: Callable[[Ledger], None]) -> None:
        self._client.config_set("maxmemory", 0)
        self._client.flushall()
        with tested(Ledger(self._client, self._scripts)) as ledger:
            test(ledger)

    def _error(self, run: Callable[[], Any], limit_s: float) -> str | None:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            run()
        except (redis.TimeoutError, redis.ConnectionError, _TookTooLongError) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._server.kill()  # it may run a script without end
            self._start()
            return type(error).__name__
        except Exception as error:  # noqa: BLE001 - a broken script may fail in any way
            return f"{type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}"[:80]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return None


def _work(queue: Any, results: Any, seeds: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or its Redis would outlive this process
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(Path(folder))
        try:
            while (mutant := queue.get()) is not None:
                results.put((mutant, judge.killer(mutant, seeds)))
        finally:
            judge.close()


def judged(chosen: Sequence[Mutant], jobs: int, seeds: int = SEEDS) -> Iterator[tuple[Mutant, str | None]]:
    """Each mutant and what noticed it, as they end. `seeds`: walks where directed tests see nothing."""
    context = multiprocessing.get_context("fork")
    queue, results = context.Queue(), context.Queue()
    for mutant in [*chosen, *[None] * jobs]:
        queue.put(mutant)
    workers = [context.Process(target=_work, args=(queue, results, seeds), daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for _ in chosen:
        yield results.get()
    for worker in workers:
        worker.join()
