"""`python -m bench.faults`: the table of docs/reliability.md. `make faults` runs it."""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.faults import table, trial
from bench.faults.catalog import FAULTS, Fault
from bench.faults.rig import FAKETIME, ClockRig, Rig
from bench.load.run import CHECKOUT
from bench.report import machine
from bench.report.document import write_section

_DOCUMENT = CHECKOUT / "docs" / "reliability.md"
_BEGIN = "<!-- begin generated: python -m bench.faults --write-docs -->"
_RESULTS = CHECKOUT / "bench" / "results" / "faults.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Injects and prints; the exit code: 1 when something was lost, doubled or did not recover."""
    parsed = _parser().parse_args(arguments)
    if parsed.write_docs:
        lines = table.load(parsed.out)
        known = [lines[fault.name] for fault in FAULTS if fault.name in lines]
        write_section(_DOCUMENT, f"{_machine()}\n\n{table.render(known)}", _BEGIN)
        return 0
    chosen = [fault for fault in FAULTS if fault.name in (parsed.only or [fault.name])]
    if parsed.quick and not parsed.only:
        chosen = [fault for fault in chosen if fault.quick]
    lines = table.load(parsed.out)
    new: dict[str, table.Line] = {}
    for kind, faults in itertools.groupby(chosen, lambda fault: fault.rig):
        new |= _on(kind, list(faults), parsed.rounds or (1 if parsed.quick else None))
        lines |= new
        table.save(parsed.out, lines)
    print(table.render(list(new.values())))
    failed = [fault.name for fault in chosen if fault.name not in new]
    if failed:
        print(f"did not come to an end: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or any(line.lost or line.doubled for line in new.values()) else 0


def _on(kind: type[Rig], faults: Sequence[Fault], rounds: int | None) -> dict[str, table.Line]:
    """The lines of these faults. A rig that a fault has left broken is replaced for the next one."""
    lines: dict[str, table.Line] = {}
    left = list(faults)
    if kind is ClockRig and not FAKETIME.exists():
        _say(f"{', '.join(fault.name for fault in faults)} are left out: they need {FAKETIME}")
        return {}
    while left:
        with tempfile.TemporaryDirectory(prefix="embedq-faults-") as folder, kind(Path(folder)) as rig:
            while left:
                fault = left.pop(0)
                if fault.volume and not rig.volume.mounted:
                    _say(f"{fault.name} is left out: it needs root, mkfs.ext4 and a loop device")
                    continue
                try:
                    lines[fault.name] = _line(rig, fault, rounds or fault.rounds)
                except Exception as error:  # noqa: BLE001 - one fault that ends badly does not end the others
                    _say(f"{fault.name} failed: {type(error).__name__}: {str(error)[:2000]}")
                    break
    return lines


def _line(rig: Rig, fault: Fault, rounds: int) -> table.Line:
    found = []
    for number in range(rounds):
        began = time.monotonic()
        found.append(trial.run(rig, fault, f"{fault.name} {number}"))
        _say(f"{fault.name} {number + 1}/{rounds}: {found[-1]} in {time.monotonic() - began:.0f} s")
        rig.await_ready()
    return table.Line.of(fault.title, found)


def _machine() -> str:
    found = machine.describe()
    return "\n".join(f"* {name}: {found[name]}" for name in ("date", "processor", "redis"))


def _parser() -> argparse.ArgumentParser:
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description="Injures a running service, and counts what is lost and doubled."
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="FAULT", help=", ".join(names))
    parser.add_argument("--rounds", type=int, metavar="N", help="of each fault (default: as the table says)")
    parser.add_argument("--quick", action="store_true", help="one round of each; the longest faults are left out")
    parser.add_argument("--write-docs", action="store_true", help="no trial: fill docs/reliability.md from the file")
    parser.add_argument(
        "--out", type=Path, default=_RESULTS, help="JSON file that keeps the lines (default: %(default)s)"
    )
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
