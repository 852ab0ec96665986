"""The users of deploy/redis against the scripts: each role may do what its scripts do, and nothing else."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from tasks.ledger.scripts import SCRIPTS, source
from tests.source_tree import CHECKOUT

DEFINITIONS = ("tasks/ledger", "tasks/records")
ROLES = {
    "api": ("api",),
    "worker": ("tasks/worker.py", "tasks/embedding", "tasks/drain", "tasks/process"),
    "documents": ("tasks/documents_worker.py", "tasks/documents", "tasks/search", "tasks/drain", "tasks/process"),
}
"""Where the code of each is."""

KINDS = {"batch": "batches", "ingestion": "ingestions"}
OF_NO_MODEL = re.compile(r"eq:(ingest|batch|file|litter)")
"""What COMMIT changes for jobs of the documents worker alone. The model worker has the same script and no such job."""
OF_CALLERS = {"eq:rate:*"}
"""What SUBMIT counts of a key with limits. Documents workers have the same script and submit for no caller."""
CALL = re.compile(r"call\((?:down and )?'([A-Z]+)'(?: or '([A-Z]+)')?")
KEY = re.compile(r"R \.\. '(:[a-z@:-]+)'")


def python_files(places: Iterable[str]) -> Iterator[Path]:
    for place in (CHECKOUT / name for name in places):
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def names(tree: ast.AST) -> set[str]:
    """Whatever a piece of code calls by name."""
    nodes = list(ast.walk(tree))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def scripts_in(tree: ast.AST) -> set[str]:
    """The scripts of the operations that a piece of code builds."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    built = [ast.unparse(call.args[0]) for call in calls if getattr(call.func, "id", "") == "Operation"]
    spelled = {text.removeprefix("f").strip("'\"").replace("{kind.value}", kind) for text in built for kind in KINDS}
    return spelled & all_scripts()


def all_scripts() -> set[str]:
    return {file.stem for file in SCRIPTS.glob("*.lua")}


@cache
def operations() -> dict[str, tuple[set[str], set[str]]]:
    """What each function, class or constant of the ledger and the records builds, and which names it uses."""
    found = {}
    for file in python_files(DEFINITIONS):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = scripts_in(node), names(node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = scripts_in(node), names(node)
    return found


@cache
def scripts_of(role: str) -> frozenset[str]:
    """The scripts that the code of a role can run."""
    todo = set[str]().union(*(names(ast.parse(file.read_text())) for file in python_files(ROLES[role])))
    done: set[str] = set()
    while todo := (todo & operations().keys()) - done:
        done |= todo
        todo = set[str]().union(*(operations()[name][1] for name in todo))
    return frozenset(set[str]().union(*(operations()[name][0] for name in done)))


def keys_in(text: str) -> set[str]:
    """Patterns of the keys that a script names."""
    found = set()
    for part in KEY.findall(text):
        parts = {
            ":": {
                f":{name}{end}"
                for one, many in KINDS.items()
                for name, end in ((one, ":"), (one, "-alias:"), (many, ":"))
            },
            ":open-": {f":open-{many}" for many in KINDS.values()},
        }.get(part, {part})
        found |= {f"eq{one}*" if one.endswith(":") else f"eq{one}" for one in parts}
    return {"eq:q:*" if pattern.startswith("eq:q:") else pattern for pattern in found} - {"eq:ended", "eq:answers:*"}


def rights(user: str) -> set[str]:
    """The words after the name of a user in the template, with its lists filled in."""
    text = (CHECKOUT / "deploy/redis/users.acl").read_text()
    entries = re.sub(r"\n +", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    lists = {entry.split()[0]: entry.split()[1:] for entry in entries if entry and not entry.startswith("user")}
    (words,) = (entry.split()[2:] for entry in entries if entry.startswith(f"user {user} "))
    return {right for word in words for right in lists.get(word.strip("<>"), [word])}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_keys_of_its_scripts_and_no_others(role: str) -> None:
    used = set[str]().union(*(keys_in(source(script)) for script in scripts_of(role)))
    if role == "worker":
        used = {pattern for pattern in used if not OF_NO_MODEL.match(pattern)}
    if role != "api":
        used -= OF_CALLERS
    granted = {word[1:] for word in rights(role) if word.startswith("~eq:")}

    assert granted == ({"eq:*"} if role == "api" else used)


def test_only_the_api_reads_keys_and_rates() -> None:
    for role in ("worker", "documents"):
        assert not {word for word in rights(role) if re.match(r"~(eq:(keys|rate)|\*|eq:\*)", word)}


def test_roles_have_the_commands_of_the_scripts_and_of_connections_alone() -> None:
    calls = {name for script in all_scripts() for pair in CALL.findall(source(script)) for name in pair if name}
    connection = {"eval", "evalsha", "hello", "ping", "select", "subscribe", "unsubscribe", "wait"}
    bells = {"brpop", "discard", "exec", "llen", "lpush", "ltrim", "multi"}

    for role in ROLES:
        granted = {word[1:] for word in rights(role) if word.startswith("+")}
        own = {name for script in scripts_of(role) for pair in CALL.findall(source(script)) for name in pair if name}
        keyless = {"SCAN"} - own  # it tells names whatever keys a user has
        assert granted == {call.lower() for call in calls - keyless} | connection | bells
    assert "scan" not in {word[1:] for role in ("worker", "documents") for word in rights(role)}


def test_every_script_belongs_to_a_role() -> None:
    assert set[str]().union(*(scripts_of(role) for role in ROLES)) == all_scripts()


def test_users_are_written_with_digests_and_keep_their_passwords(tmp_path: Path) -> None:
    script, folder = CHECKOUT / "deploy/redis/make_users.py", tmp_path / "users"
    subprocess.run([sys.executable, script, folder], check=True, umask=0o022)
    passwords = dict(line.split() for line in (folder / "passwords").read_text().splitlines())
    subprocess.run([sys.executable, script, folder, "+waitaof"], check=True)
    written = {line.split()[1]: line for line in (folder / "users.acl").read_text().splitlines()}

    assert dict(line.split() for line in (folder / "passwords").read_text().splitlines()) == passwords
    assert (folder / "passwords").stat().st_mode & 0o077 == 0
    assert [path.stat().st_mode & 0o044 for path in (folder, folder / "users.acl")] == [0o044] * 2
    assert written.keys() == passwords.keys() | {"default", "probe"}
    assert all(f"#{sha256(passwords[user].encode()).hexdigest()} " in written[user] for user in passwords)
    assert not [user for user in passwords if passwords[user] in written[user] or "<" in written[user]]
    assert {user for user in written if "+waitaof" in written[user]} == set(ROLES)
