"""A sandbox's process that misbehaves on demand: its reader of HTML does what the document says."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil

from tasks.ingestion.parsing import sandbox_child
from tasks.ingestion.parsing.formats import HTML


def obey(_: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    match data.decode().split(maxsplit=1):
        case ["hang"]:
            while True:
                time.sleep(60)
        case ["eat"]:
            return said(str(len(bytearray(2**40))))
        case ["abort"]:
            os.abort()
        case ["raise"]:
            raise RuntimeError("secret words")
        case ["write", path]:
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - as a library would
                file.write("x")
        case ["environment"]:
            return said(" ".join(sorted(os.environ)))
        case ["answer", answer]:
            header, body = orjson.loads(answer)
            return header, body.encode("latin-1")
        case ["raw", answer]:
            with os.fdopen(answers(), "wb") as file:
                file.write(answer.encode())
            time.sleep(60)
    return said("done")


def said(text: str) -> tuple[dict[str, Any], bytes]:
    return {"title": None, "structure": "paragraphs", "pages": [], "warnings": []}, text.encode()


def pid_of(module: str = sandbox_child.__name__) -> int | None:
    """Of the sandbox that this process has started last; `module`: what it runs. None: there is none now."""
    found = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    ours = sorted((each.create_time(), each.pid) for each in found if module in each.cmdline())
    return ours[-1][1] if ours else None


def answers() -> int:
    """Of the pipes, the one that is not standard input or output."""
    return next(fd for fd in range(3, 64) if Path(f"/proc/self/fd/{fd}").is_fifo())


if __name__ == "__main__":
    sandbox_child.HANDLERS[HTML.media_type] = obey
    sandbox_child.main(sys.argv[1:])
