"""`python -m bench.faults`: the tables of docs/reliability.md. `make faults` runs it."""

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.faults import table, tenants, trial
from bench.faults.catalog import FAULTS, Fault
from bench.faults.rig import ClockRig, Rig
from bench.load.run import CHECKOUT
from bench.report import machine
from bench.report.document import write_section

_RESULTS = CHECKOUT / "bench" / "results"
_DOCUMENT = CHECKOUT / "docs" / "reliability.md"
_BEGIN = "<!-- begin generated: python -m bench.faults --write-docs -->"
_ROUNDS, _SECONDS = 5, 10.0
"""Of what tenants feel of each other."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Injects, measures and prints; the exit code: 1 when something was lost, doubled or did not come to an end."""
    parsed = _parser().parse_args(arguments)
    if parsed.write_docs:
        _write_docs(parsed.out)
        return 0
    names = parsed.only or _names(quick=parsed.quick)
    chosen = [fault for fault in FAULTS if fault.name in names]
    lines: dict[str, table.Line] = {}
    for kind, faults in itertools.groupby(chosen, lambda fault: fault.rig):
        possible = [fault for fault in faults if _possible(fault)]
        lines |= _on(kind, possible, parsed)
        table.save(parsed.out / "faults.json", table.load(parsed.out / "faults.json") | lines)
    print(table.render(list(lines.values())))
    failed = [fault.name for fault in chosen if _possible(fault) and fault.name not in lines]
    for name in (name for name in tenants.SCENARIOS if name in names):
        figures = _measured(name, parsed.rounds or (1 if parsed.quick else _ROUNDS))
        if figures is None:
            failed.append(name)
            continue
        tenants.save(parsed.out / "tenants.json", tenants.load(parsed.out / "tenants.json") | {name: figures})
        print(tenants.render(figures))
    if failed:
        _say(f"did not come to an end: {', '.join(failed)}")
    return 1 if failed or any(line.lost or line.doubled for line in lines.values()) else 0


def _names(*, quick: bool = False) -> list[str]:
    return [fault.name for fault in FAULTS if fault.quick or not quick] + ([] if quick else [*tenants.SCENARIOS])


def _possible(fault: Fault) -> bool:
    """Whether this machine can do it; says why not."""
    if fault.rig is ClockRig and shutil.which("cc") is None:
        _say(f"{fault.name} is left out: it needs a C compiler")
        return False
    return True


def _on(kind: type[Rig], faults: Sequence[Fault], parsed: argparse.Namespace) -> dict[str, table.Line]:
    """The lines of these faults. A rig that a fault has left broken is replaced for the next one."""
    lines: dict[str, table.Line] = {}
    left = list(faults)
    while left:
        fault = left[0]
        try:
            with tempfile.TemporaryDirectory(prefix="embedq-faults-") as folder, kind(Path(folder)) as rig:
                while left:
                    fault = left.pop(0)
                    if fault.volume and not rig.volume.mounted:
                        _say(f"{fault.name} is left out: it needs root, mkfs.ext4 and a loop device")
                        continue
                    lines[fault.name] = _line(rig, fault, parsed)
        except Exception as error:  # noqa: BLE001 - one fault that ends badly does not end the others
            _say(f"{fault.name} failed: {type(error).__name__}: {str(error)[:2000]}")
            left = [each for each in left if each is not fault]
    return lines


def _line(rig: Rig, fault: Fault, parsed: argparse.Namespace) -> table.Line:
    rounds = parsed.rounds or (1 if parsed.quick else fault.rounds)
    size = trial.QUICK if parsed.quick else trial.NORMAL
    found = []
    for number in range(rounds):
        began = time.monotonic()
        found.append(trial.run(rig, fault, f"{fault.name} {number}", size))
        _say(f"{fault.name} {number + 1}/{rounds}: {found[-1]} in {time.monotonic() - began:.0f} s")
        rig.await_ready()
    return table.Line.of(fault.title, found)


def _measured(name: str, rounds: int) -> list[tenants.Figure] | None:
    with tempfile.TemporaryDirectory(prefix="embedq-tenants-") as folder, Rig(Path(folder)) as rig:
        try:
            return tenants.SCENARIOS[name](rig, rounds, _SECONDS)
        except Exception as error:  # noqa: BLE001 - as above
            _say(f"{name} failed: {type(error).__name__}: {str(error)[:2000]}")
            return None


def _write_docs(results: Path) -> None:
    lines, figures = table.load(results / "faults.json"), tenants.load(results / "tenants.json")
    known = [lines[fault.name] for fault in FAULTS if fault.name in lines]
    measured = [figure for name in tenants.SCENARIOS for figure in figures.get(name, ())]
    found = machine.describe()
    header = "\n".join(f"* {name}: {found[name]}" for name in ("date", "processor", "redis"))
    write_section(_DOCUMENT, "\n\n".join([header, table.render(known), tenants.render(measured)]), _BEGIN)
    _say(f"{_DOCUMENT} is new")


def _parser() -> argparse.ArgumentParser:
    names = _names()
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description="Injures a running service and counts what is lost and doubled; measures what keys feel of others.",
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, metavar="N", help="of each fault (default: as the table says)")
    parser.add_argument("--quick", action="store_true", help="one short round of each fault, without the longest")
    parser.add_argument("--write-docs", action="store_true", help="no trial: fill docs/reliability.md from the files")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder of the results (default: %(default)s)")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
