"""`python -m bench.faults`: the tables of docs/reliability.md. `make faults` runs it."""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.faults.callers import Account, Load
from bench.faults.catalog import FAULTS, Fault
from bench.faults.rig import Rig, VolumeRig
from bench.faults.tenants import loud_neighbour
from bench.report import markdown, shown_spread
from tests.processes import eventually

_HEAD = ("fault", "injected", "accepted", "completed", "lost", "doubled", "again", "calls repeated", "recovery s")
_NEIGHBOUR = "loud-neighbour"
_ROUNDS, _SECONDS = 3, 10.0
_SIZE, _QUICK_SIZE = (1_500, 400), (500, 200)
"""Lines of the batch, and documents of the ingestion."""
_AFTERWARDS_S = 1.0
"""The load goes on for so long after the recovery."""
_KINDS = 3
"""Of work, beside queries."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Injects, measures and prints; the exit code: 1 when something was lost, doubled or did not come to an end."""
    parsed = _parser().parse_args(arguments)
    names = parsed.only or [*FAULTS, _NEIGHBOUR]
    rounds = parsed.rounds or (1 if parsed.quick else _ROUNDS)
    lines, figures, bad = [], list[list[str]](), []
    for name in names:
        kind = FAULTS[name].rig if name in FAULTS else Rig
        if kind is VolumeRig and os.geteuid():
            _say(f"{name} is left out: it needs root")
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="embedq-faults-") as folder, kind(Path(folder)) as rig:
                if name == _NEIGHBOUR:
                    figures = loud_neighbour(rig, rounds, _SECONDS)
                    continue
                line, account = _injected(rig, name, rounds, _QUICK_SIZE if parsed.quick else _SIZE)
        except Exception as error:  # noqa: BLE001 - one fault that ends badly does not end the others
            _say(f"{name} failed: {type(error).__name__}: {str(error)[:2000]}")
            bad.append(name)
            continue
        lines.append(line)
        bad += [name] if account.lost or account.doubled else []
    if lines:
        print(markdown(_HEAD, lines), end="\n\n")
    if figures:
        print(markdown(("figure", "median (least to most)", "target"), figures), end="\n\n")
    if bad:
        _say(f"lost, doubled or did not come to an end: {', '.join(bad)}")
    return 1 if bad else 0


def _injected(rig: Rig, name: str, rounds: int, size: tuple[int, int]) -> tuple[list[str], Account]:
    """All rounds of one fault: its line, and the account."""
    total, times = Account(), []
    for number in range(rounds):
        # No other round has this name, so that no text comes twice.
        account, recovery_s = asyncio.run(_round(rig, FAULTS[name], f"{name} {number}", size))
        _say(f"{name} {number + 1}/{rounds}: {account}, recovery {recovery_s:.1f} s")
        total += account
        times.append(recovery_s)
        rig.await_ready()
    counts = (total.accepted, total.completed, total.lost, total.doubled, total.again, total.repeated)
    return [FAULTS[name].title, str(rounds), *(f"{count:,}" for count in counts), shown_spread(times)], total


async def _round(rig: Rig, fault: Fault, name: str, size: tuple[int, int]) -> tuple[Account, float]:
    """Injects the fault once, in the middle of a load."""
    before = rig.committed()

    async def at_work() -> bool:
        return len(load.at_work) == _KINDS

    async def recovered() -> float | None:
        return load.recovery_s(since)

    async with Load(rig, name, *size) as load:
        await eventually(at_work, message="a load at work")
        await asyncio.to_thread(fault.inject, rig)
        since = time.monotonic()
        recovery_s = await eventually(recovered, message="an answer")
        await asyncio.sleep(_AFTERWARDS_S)
    account = load.account
    if not fault.forgets:
        # A query without an answer was stored or not; everything else was stored once.
        account.doubled += max(0, rig.committed() - before - account.completed - account.unanswered)
    return account, recovery_s


def _parser() -> argparse.ArgumentParser:
    names = [*FAULTS, _NEIGHBOUR]
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description="Injures a running service, counts what is lost and doubled; and what a key feels of a loud one.",
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, metavar="N", help=f"of each fault (default: {_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
