"""Runs the real supervisor over actors: `python -m tests.integration.stack.play CAST.json`."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stack.log import Log
from stack.roles import Role
from stack.supervisor import Supervisor

ACTOR = str(Path(__file__).with_name("actor.py"))


def exists(path: str | None) -> Callable[[], bool]:
    return lambda: path is None or Path(path).exists()


def role(actor: dict[str, Any], journal: str) -> Role:
    touch = actor.get("touch")
    flags = [*actor.get("flags", []), *(["--touch", touch] if touch else [])]
    return Role(
        name=actor["name"],
        command=(*actor.get("command", (sys.executable, ACTOR, journal, actor["name"])), *flags),
        environment=dict(os.environ),
        stage=actor.get("stage", 0),
        grace_s=actor.get("grace_s", 20),
        is_up=exists(actor.get("up_when")),
        alive_file=Path(touch) if touch else None,
        hung_after_s=actor.get("hung_after_s", 30),
    )


def main(cast_file: str) -> int:
    cast = json.loads(Path(cast_file).read_text())
    roles = [role(actor, cast["journal"]) for actor in cast["actors"]]
    return Supervisor(
        roles,
        Log([role.name for role in roles], sys.stderr),
        is_ready=exists(cast.get("ready_when")),
        announce=lambda: print("ready", flush=True),  # noqa: T201 - this is what a reader of stdout gets
    ).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
