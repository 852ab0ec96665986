"""A stage on which a supervisor runs actors."""

import json
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from stack.testing import Process, wait_until


class Stage(Process):
    """The supervisor as a process of its own, over actors that keep one journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__("supervisor", [sys.executable, "-m", "tests.integration.stack.play"], folder)
        self.stdout_file = folder / "stdout"
        self.journal = folder / "journal"

    def perform(self, *actors: dict[str, Any], ready_when: Path | None = None) -> Self:
        cast_file = self.folder / "cast.json"
        ready_file = str(ready_when) if ready_when else None
        cast_file.write_text(
            json.dumps({"journal": str(self.journal), "actors": actors, "ready_when": ready_file}, default=str)
        )
        self.command.append(str(cast_file))
        self.launch()
        return self

    def pids(self, name: str, what: str = "start") -> list[int]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [int(line.split()[2]) for line in lines if line.split()[:2] == [name, what]]

    def wait_for(self, *names: str, times: int = 1) -> None:
        wait_until(
            lambda: all(len(self.pids(name)) >= times for name in names),
            message=f"{names} did not all start {times} times",
        )

    def stopped(self) -> list[str]:
        """Names in the order in which they stopped by themselves."""
        return [line.split()[0] for line in self.journal.read_text().splitlines() if line.split()[1] == "stop"]

    def all_pids(self) -> list[int]:
        return [int(line.split()[2]) for line in self.journal.read_text().splitlines()]

    def wait_for_nobody(self) -> None:
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in self.all_pids()), message="orphans are left")
