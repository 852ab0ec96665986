"""`python -m tasks.probe ready|live`: exit 0 or 1, for containers. Reads one file, asks neither Redis nor the model."""

import sys

from tasks.worker.process.hangs import DEFAULT_PATIENCE
from tasks.worker.process.ready_file import RunFolder
from worker_config.settings import load_settings


def main(arguments: list[str]) -> int:
    """0 when the answer is yes, 1 when it is no, 2 when the question is not understood."""
    folder = RunFolder(load_settings().run_dir)
    match arguments:
        case ["ready"]:
            return 0 if folder.is_ready() else 1
        case ["live"]:
            return 0 if folder.is_alive(DEFAULT_PATIENCE.parent_s) else 1
    sys.stderr.write("usage: python -m tasks.probe ready|live\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
