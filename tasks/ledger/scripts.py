"""What is asked of Redis, as values: a call of a script in `lua/`, or plain commands, and how to read the reply."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

SCRIPTS = Path(__file__).parent / "lua"

T = TypeVar("T")
Argument = str | bytes | int | float
Command = tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One round trip. All are idempotent: a second one after a lost reply changes nothing more, and is answered alike.

    Attributes:
        read: from the script's reply, or from the list of the commands' replies, to the value; it may raise.
        script: name of a file in `lua/`; "" where there are commands.
        queue: the served name of a model, or `DOCUMENTS`; "" for a script that concerns no queue.
        arguments: of the script, by position.
        gathers: more arguments, behind these, of a script that serves several callers at once. Its reply has an entry
            for each of them, and behind these what concerns all; `read` gets one entry, and behind it what is for all
            if it falls to this caller.
        commands: plain ones, sent together. They are no transaction.
        promised: somebody relies on it after the reply, so a replica must have it where `EMBEDQ_REDIS_ACK` says so.
    """

    read: Callable[[Any], T]
    script: str = ""
    queue: str = ""
    arguments: tuple[Argument, ...] = ()
    gathers: tuple[Argument, ...] = ()
    commands: tuple[Command, ...] = ()
    promised: bool = False


_USES = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: +--.*)?\n", re.MULTILINE)


def constants(text: str) -> Mapping[str, str]:
    """Numbers that a Lua text names with `local NAME, OTHER = 1, 2`."""
    pairs = (zip(m[1].split(", "), m[2].split(", "), strict=True) for m in _CONSTANTS.finditer(text))
    return dict(chain.from_iterable(pairs))


@cache
def source(name: str, folder: Path = SCRIPTS) -> str:
    """The text of one script: the shared parts that it and they name with `-- uses:`, each once, and its own file.

    Redis runs the whole text with each call, so a script does not pay for parts that it does not use. Constants are
    written into the text as numbers: a local that functions share is looked for each time that one of them is made.
    """
    parts: dict[str, str] = {}

    def add(part: str) -> None:
        text = (folder / f"{part}.lua").read_text()
        for line in _USES.findall(text):
            for used in line.split():
                if f"shared/{used}" not in parts:
                    add(f"shared/{used}")
        parts[part] = text

    add("shared/base")
    add(name)
    text = "\n".join(parts.values())
    numbers = constants(text)
    if not numbers:
        return text
    return re.sub(rf"\b({'|'.join(numbers)})\b", lambda found: numbers[found[1]], _CONSTANTS.sub("", text))


@cache
def sha(name: str, folder: Path = SCRIPTS) -> str:
    """The name under which Redis knows the script."""
    return sha1(source(name, folder).encode(), usedforsecurity=False).hexdigest()
