"""Breaks the scripts by rule, one place at a time, and shows that the tests notice.

Each rule is applied to each place of each script where it fits. A mutant runs through the directed tests, the quickest
first, and where they see nothing through the walks.
"""

import importlib
import inspect
import multiprocessing
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import RedisServer
from tests.simulation.agreement import check_agreement
from tests.simulation.conftest import prepared
from tests.simulation.thin_client import Ledger, Scripts
from tests.simulation.walks import walk

SEEDS, STEPS = 12, 150
_CALL_S, _TEST_S, _WALK_S = 30, 20, 60
"""The first by the clock, for a script without end; the others of this process's processor, for a test without end."""
_NOT_DIRECTED = {"test_walks", "test_mutants"}
_SCRIPTS = ("submit", "claim", "commit", "give_back", "cancel", "heartbeat", "overview", "list", "request_rate")
"""Scripts of records have tests of their own."""
_NOT_OURS = {"shared/records.lua"}
_LISTED = (Path(__file__).parent / "equivalent.txt").read_text().splitlines()
EQUIVALENT = frozenset(line for line in _LISTED if not line.startswith("#"))
"""Mutants that change nothing that anybody could see, by name. The file says why."""


@dataclass(frozen=True)
class Mutant:
    """One line of one script, changed by a rule."""

    file: str
    line: int
    rule: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """It stays when lines move."""
        return f"{self.file}: {self.rule}: {self.old.strip()}" + (f" -> {self.new.strip()}" if self.new.strip() else "")

    def scripts(self) -> Scripts:
        """All scripts, of which this one is broken."""
        whole = Scripts.of_the_ledger()
        lines = whole.texts[self.file].split("\n")
        lines[self.line] = self.new
        return whole.with_text(self.file, "\n".join(lines))


def _swap(old: str, new: str) -> Callable[[str], Iterator[str]]:
    def changed(code: str) -> Iterator[str]:
        for found in re.finditer(old, code):
            yield code[: found.start()] + new + code[found.end() :]

    return changed


def _without(pattern: str) -> Callable[[str], Iterator[str]]:
    def changed(code: str) -> Iterator[str]:
        if re.fullmatch(pattern, code.strip()):
            yield ""

    return changed


def _double(code: str) -> Iterator[str]:
    if found := re.fullmatch(r"local [A-Z_]+ = (\d+)", code.strip()):
        yield code.replace(f"= {found[1]}", f"= {2 * int(found[1])}")


RULES: dict[str, Callable[[str], Iterator[str]]] = {
    "step left out": _without(r"[a-z_]+\((?!.*function).*\)"),
    "assignment left out": _without(r"(?!local )[a-z_.\[\]A-Z', #+0-9()]+ = [^=]+"),
    "never": _swap(r"(?<=if ).+?(?= then)", "false"),
    "always": _swap(r"(?<=if ).+?(?= then)", "true"),
    "equal": _swap(" == ", " ~= "),
    "unequal": _swap(" ~= ", " == "),
    "at the edge": _swap(r" <= ", " < "),
    "beyond the edge": _swap(r" < ", " <= "),
    "at the upper edge": _swap(r" >= ", " > "),
    "beyond the upper edge": _swap(r" > ", " >= "),
    "plus": _swap(r" \+ ", " - "),
    "minus": _swap(r" - ", " + "),
    "and": _swap(r" and ", " or "),
    "or": _swap(r" or ", " and "),
    "not": _swap(r"\bnot ", ""),
    "twice the number": _double,
}


def mutants() -> list[Mutant]:
    """All of them."""
    scripts, found = Scripts.of_the_ledger(), list[Mutant]()
    for file in sorted({file for name in _SCRIPTS for file in scripts.parts(f"{name}.lua")} - _NOT_OURS):
        for number, line in enumerate(scripts.texts[file].split("\n")):
            code = line.split(" --", maxsplit=1)[0].rstrip()
            if code and not line.startswith("--"):
                found += [
                    Mutant(file, number, rule, code, new) for rule, change in RULES.items() for new in change(code)
                ]
    return found


def directed_tests() -> list[Callable[[Ledger], None]]:
    """All tests here that need no more than a ledger."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    modules = [importlib.import_module(f"tests.simulation.{name}") for name in names if name not in _NOT_DIRECTED]
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
        self._server = RedisServer(folder, unix_socket=True)
        self._start()
        signal.signal(signal.SIGPROF, _too_long)
        self._tests = directed_tests()
        took = {test: self._took(test) for test in self._tests}
        self._tests.sort(key=lambda test: took[test])

    def close(self) -> None:
        """Stops its Redis."""
        self._server.stop()

    def killer(self, scripts: Scripts, seeds: int) -> str | None:
        """What noticed that these scripts are broken; None: nothing."""
        for test in self._tests:
            if error := self._error(lambda test=test: self._run(test, scripts), _TEST_S):  # type: ignore[misc]
                self._tests.remove(test)
                self._tests.insert(0, test)  # it is likely to notice the next one too
                return f"{test.__name__}: {error}"
        for seed in range(seeds):
            self._client.config_set("maxmemory", 0)
            if error := self._error(lambda seed=seed: walk(self._client, seed, STEPS, scripts), _WALK_S):  # type: ignore[misc]
                return f"walk {seed}: {error}"
        return None

    def _start(self) -> None:
        self._server.start()
        url = self._server.url
        self._client = redis.Redis.from_url(url, socket_timeout=_CALL_S, retry=Retry(NoBackoff(), 0))
        self._client.config_set("appendonly", "no")

    def _ledger(self, scripts: Scripts) -> Ledger:
        self._client.config_set("maxmemory", 0)
        self._client.flushall()
        return prepared(Ledger(self._client, scripts))

    def _run(self, test: Callable[[Ledger], None], scripts: Scripts) -> None:
        ledger = self._ledger(scripts)
        test(ledger)
        if not ledger.tampered:
            check_agreement(ledger)

    def _took(self, test: Callable[[Ledger], None]) -> float:
        began = time.perf_counter()
        error = self._error(lambda: self._run(test, Scripts.of_the_ledger()), _TEST_S)
        assert error is None, f"{test.__name__} fails without a mutant: {error}"
        return time.perf_counter() - began

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
        try:
            judge = Judge(Path(folder))
        except AssertionError as error:  # a test fails without any mutant
            results.put(error)
            return
        try:
            while (mutant := queue.get()) is not None:
                results.put((mutant, judge.killer(mutant.scripts(), seeds)))
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
        result = results.get()
        if isinstance(result, AssertionError):
            raise result
        yield result
    for worker in workers:
        worker.join()


def sample(number: int, seed: int) -> list[Mutant]:
    """Some of those that change what the scripts do."""
    chosen = [mutant for mutant in mutants() if mutant.name not in EQUIVALENT]
    return random.Random(seed).sample(chosen, min(number, len(chosen)))  # noqa: S311 - the same ones each time
