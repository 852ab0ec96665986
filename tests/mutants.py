"""Breaks the ledger's scripts on purpose, one place at a time, and shows that the tests notice.

python -m tests.mutants                 every mutant: the simulation, and where it sees nothing, the directed tests
python -m tests.mutants 3 7             these alone
python -m tests.mutants --soak 200      no mutant: 200 seeds of the simulation on the real scripts
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from stack.testing import RedisServer
from tasks.ledger.scripts import SCRIPTS
from tests.integration.ledger.simulation.weighted import MODES, run
from tests.mutations import MUTATIONS, Mutation

SEEDS = 32
STEPS = 150
LEDGER, RECORDS = (Path(__file__).parent / "integration" / room for room in ("ledger", "records"))
OF_RECORDS = (
    *(
        "batch_",
        "file_",
        "key_",
        "purge",
        "ingestion_",
        "litter_",
        "open_list",
        "owned_list",
        "record_delete",
        "record_find",
        "standing",
        "storage_id",
    ),
    *("shared/ingestions", "shared/keys", "shared/litter", "shared/quota", "shared/records"),
)
"""Scripts that the simulation never calls, and of which directed tests soon say whether they are broken."""
NOT_DIRECTED = ("test_machine.py", "test_mutants.py", "test_outage.py")
"""The simulation again, which would be named as the first test to fail, and tests that no script can break."""
_LEAK = "keys without a TTL are left"
"""What a fixture says that looks at Redis after a test: it has noticed the script."""


@dataclass(frozen=True)
class Verdict:
    """How a mutant ended. `killer`: the first line of what noticed it, None when nothing did."""

    mutation: Mutation
    killer: str | None


def broken_copy(mutation: Mutation, folder: Path) -> Path:
    """A copy of the scripts with one change."""
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    (folder / mutation.file).write_text(broken_text(mutation))
    return folder


def broken_text(mutation: Mutation) -> str:
    """Its file with the change.

    Raises:
        ValueError: the text to be changed is not in the file exactly once.
    """
    text = (SCRIPTS / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.file} holds its text {text.count(mutation.old)} times")
    return text.replace(mutation.old, mutation.new)


def noticed_by_simulation(client: redis.Redis, scripts: Path, seeds: int = SEEDS) -> str | None:
    """The first violation that the simulation meets on these scripts."""
    for seed in range(seeds):
        try:
            run(client, seed, STEPS, MODES[seed % len(MODES)], scripts)
        except Exception as error:  # noqa: BLE001 - a broken script may fail in any way, and each one counts
            return f"seed {seed}: {type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}"[:110]
    return None


def noticed_by_directed_tests(scripts: Path, folders: Sequence[Path]) -> str | None:
    """The first directed test in these folders that fails on these scripts.

    An error of a fixture is no such failure: it may have another cause. Then all of the tests are asked.
    """
    for options in (["-x"], []):
        lines = _outcomes(scripts, folders, options)
        if killer := next((line[:110] for line in lines if line.startswith("FAILED") or _LEAK in line), None):
            return killer
        if not lines:
            return None
    return None


def _outcomes(scripts: Path, folders: Sequence[Path], options: Sequence[str]) -> list[str]:
    ignored = [f"--ignore={LEDGER / name}" for name in NOT_DIRECTED]
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *options, *ignored, *map(str, folders)],
        env={**os.environ, "LEDGER_SCRIPTS": str(scripts), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [line for line in shown.splitlines() if line.startswith(("FAILED", "ERROR"))]


@contextmanager
def quick_redis() -> Iterator[redis.Redis]:
    """A client of a Redis of its own that keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), unix_socket=True).start()
        try:
            with server.client() as client:
                client.config_set("appendonly", "no")
                yield client
        finally:
            server.stop()


def judge(client: redis.Redis, mutation: Mutation) -> Verdict:
    """Runs the tests on one mutant, those first that are likely to notice it soon."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = broken_copy(mutation, Path(folder))
        if mutation.file.startswith(OF_RECORDS):
            killer = noticed_by_directed_tests(scripts, (RECORDS, LEDGER))
        else:
            killer = noticed_by_simulation(client, scripts) or noticed_by_directed_tests(scripts, (LEDGER, RECORDS))
        return Verdict(mutation, killer)


def soak(client: redis.Redis, seeds: int) -> None:
    """Runs the simulation on the real scripts; the first violation is raised."""
    stats = Counter[str]()
    for seed in range(seeds):
        stats += run(client, seed, STEPS, MODES[seed % len(MODES)]).stats
    print(dict(stats))  # noqa: T201


def main() -> int:
    """Exit code 1 when a mutant survives."""
    parser = argparse.ArgumentParser(description="Do the ledger's tests notice broken scripts?")
    parser.add_argument("numbers", nargs="*", type=int, help="which mutants; all of them when none is named")
    parser.add_argument("--soak", type=int, metavar="SEEDS", help="run the simulation on the real scripts instead")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the Redis would outlive this process
    with quick_redis() as client:
        if options.soak:
            soak(client, options.soak)
            return 0
        survivors = 0
        for number in options.numbers or range(len(MUTATIONS)):
            verdict = judge(client, MUTATIONS[number])
            survivors += verdict.killer is None
            print(f"{number:2} {verdict.mutation.name}: {verdict.killer or 'SURVIVED'}", flush=True)  # noqa: T201
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
