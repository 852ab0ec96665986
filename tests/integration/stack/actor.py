"""A role for tests: writes what happens to it into a journal, and misbehaves as told."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    parser = argparse.ArgumentParser()
    parser.add_argument("journal", type=Path)
    parser.add_argument("name")
    parser.add_argument("--exit", type=int, help="leave at once with this code")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--touch", type=Path, help="touch a file once and never again")
    parser.add_argument("--parent-of-one", action="store_true", help="start a stubborn process in the same group")
    options = parser.parse_args()

    def note(what: str) -> None:
        with options.journal.open("a") as journal:
            journal.write(f"{options.name} {what} {os.getpid()}\n")

    def leave(number: int, frame: FrameType | None) -> None:
        if not options.stubborn:
            note("stop")
            sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    if options.touch:
        options.touch.touch()
    if options.parent_of_one:
        subprocess.Popen([sys.executable, __file__, str(options.journal), f"{options.name}-child", "--stubborn"])
    sys.stdout.write(f"{options.name} says hello\n")
    sys.stdout.flush()
    note("start")
    if options.exit is not None:
        sys.stderr.write(f"{options.name} gives up\n")
        sys.exit(options.exit)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
