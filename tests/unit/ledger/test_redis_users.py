"""The users of deploy/redis against the scripts: each role may do what its scripts do, and nothing else."""

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from tasks.ledger.redis_keys import DRIVER, JOB_ENDS, REFERENCES, SCHEMA, STORAGE
from tasks.ledger.scripts import SCRIPTS, source
from tasks.records.api_keys import Key
from tests.source_tree import CHECKOUT

ROLES = ("api", "worker", "documents")
OF_MODELS = ("claim", "commit", "give_back", "heartbeat", "overview")
"""What a model worker runs. Some of it names records too, which it changes for documents workers and the web tier."""
OPEN_JOBS = {"eq:index:batch:@open", "eq:index:ingestion:@open"}
"""What an overview counts, for whoever asks."""
KINDS = ("batch", "file", "ingestion", "mark")
"""Of records that are no API keys."""
OF_A_KIND = {":", ":index:", ":record-alias:"}
OF_JOBS = {"eq:batch-done:*", "eq:ingestion-done:*", DRIVER, JOB_ENDS}
OF_RECORDS = re.compile(r"eq:(batch|changes|ends|file|index:(?!task)|ingestion|job-order|litter|mark|record-alias)")
CALL = re.compile(r"\bcall\('([A-Z]+)'")
KEY = re.compile(r"R \.\. '(:[a-z@:-]*)'")
CHANNELS = {"eq:answers:*", "eq:ended", "eq:jobs"}
WITHOUT_SCRIPTS = {"del", "get", "hget", "hgetall", "hmget", "hsetnx", "pexpire", "set", "zrangebyscore", "zrank"}
"""Commands of operations that need none."""


def all_scripts() -> set[str]:
    return {file.stem for file in SCRIPTS.glob("*.lua")}


def keys_in(text: str) -> set[str]:
    """Patterns of the keys that a script names."""
    named = {
        place + kind
        for part in KEY.findall(text)
        for place, kind in ([(part, f"{one}:") for one in KINDS] if part in OF_A_KIND else [(part, "")])
    }
    found = {f"eq{one}*" if one.endswith(":") else f"eq{one}" for one in named}
    return {"eq:q:*" if pattern.startswith("eq:q:") else pattern for pattern in found} - CHANNELS


def rights(user: str) -> set[str]:
    """The words after the name of a user in the template, with its lists filled in."""
    text = (CHECKOUT / "deploy/redis/users.acl").read_text()
    entries = re.sub(r"\n +", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    lists = {entry.split()[0]: entry.split()[1:] for entry in entries if entry and not entry.startswith("user")}
    (words,) = (entry.split()[2:] for entry in entries if entry.startswith(f"user {user} "))
    return {right for word in words for right in lists.get(word.strip("<>"), [word])}


def granted_keys(role: str) -> set[str]:
    return {word[1:] for word in rights(role) if word.startswith("~eq:")}


def test_a_role_has_the_keys_of_its_scripts_and_no_others() -> None:
    used = set[str]().union(*(keys_in(source(script)) for script in all_scripts())) - {REFERENCES}  # of models alone
    of_models = set[str]().union(*(keys_in(source(script)) for script in OF_MODELS))

    assert granted_keys("api") == {"eq:*"}
    assert granted_keys("documents") == used | OF_JOBS | {SCHEMA, STORAGE}
    of_tasks = {key for key in of_models if not OF_RECORDS.match(key)}
    assert granted_keys("worker") == of_tasks | OPEN_JOBS | {SCHEMA, STORAGE, REFERENCES}


def test_only_the_api_reads_keys() -> None:
    of_keys = [f"eq:{place}{Key.KIND}:x" for place in ("", "index:")]
    granted = granted_keys("worker") | granted_keys("documents")
    assert not [key for key in of_keys for pattern in granted if fnmatchcase(key, pattern)]


def test_roles_have_the_commands_of_the_scripts_and_of_connections_alone() -> None:
    calls = {name.lower() for script in all_scripts() for name in CALL.findall(source(script))}
    connection = {"eval", "evalsha", "hello", "ping", "select", "subscribe", "unsubscribe", "wait"}
    bells = {"brpop", "discard", "exec", "llen", "lpush", "ltrim", "multi"}

    for role in ROLES:
        granted = {word[1:] for word in rights(role) if word.startswith("+")}
        assert granted == calls | WITHOUT_SCRIPTS | connection | bells


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
