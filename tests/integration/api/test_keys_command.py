"""`embedq keys`: through a server, and through its Redis where there is no key yet.

What goes through Redis is a process behind the command. Two tests run it so; the others run its `main` here.
"""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from api import keys_command
from embedq.cli import main
from stack.data_folder import write_address
from tasks.records.api_keys import environment_owner
from tests.integration.api.served import KEYS, ServedApp, bearer
from tests.processes import wait_until

Keys = Callable[..., Any]


@pytest.fixture
def keys(app: ServedApp, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Keys:
    """Runs the command with a key; its JSON, or its exit code and code of error where it fails."""
    monkeypatch.setenv("EMBEDQ_URL", str(app.client.base_url))
    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)

    def run(*arguments: str, key: str = "") -> Any:
        monkeypatch.setenv("EMBEDQ_API_KEY", key)
        code = main(["keys", *arguments, "--json"])
        told = capsys.readouterr()
        if code:
            return code, json.loads(told.err)["code"]
        return [json.loads(line) for line in told.out.splitlines()]

    return run


@pytest.fixture
def through_redis(keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Keys:
    """The same of what `python -m api.keys_command` prints with this standard input."""
    monkeypatch.setattr(keys_command, "REFRESH_S", 0)  # it waits as long, until every process of the service knows

    def run(*arguments: str, text: str = "") -> Any:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        code = keys_command.main(arguments)
        printed = capsys.readouterr()
        assert "secret" not in printed.out + printed.err
        told = [json.loads(line) for line in printed.out.splitlines()]
        return (code, told[0]["code"]) if code else told

    return run


@pytest.fixture
def create(app: ServedApp, through_redis: Keys) -> Keys:
    """Makes a key through Redis; its text, once the server knows it."""

    def run(name: str, owner: str = "", **fields: Any) -> Any:
        made = through_redis(*(("--owner", owner) if owner else ()), "create", json.dumps({"name": name, **fields}))
        if isinstance(made, tuple):
            return made
        wait_until(lambda: name_of(app, made[0]["key"]) == name, message="it is known")
        return made[0]["key"]

    return run


def name_of(app: ServedApp, key: str) -> str | None:
    """Of the key, as the server knows it."""
    found: str | None = app.client.get("/v1/key", headers=bearer(key)).json().get("name")
    return found


def export_of(through_redis: Keys) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in through_redis("export"))


def test_a_key_from_its_first_day_to_its_last(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [made] = keys("create", "ops")
    assert set(made) == {"name", "key"}
    ops = made["key"]
    monkeypatch.setenv("EMBEDQ_API_KEY", f"{ops}\n")  # with its line break, as a shell's $(…) has none
    assert main(["keys", "list"]) == 0  # people get lines
    assert capsys.readouterr().out.splitlines() == ["ops online,bulk,files,ingest,read,operate,admin"]
    assert keys("create", "ops", key=ops) == (3, "key_exists")
    assert keys("list") == (3, "invalid_api_key")
    with pytest.raises(SystemExit, match="2"):
        keys("create", "acme", "--requests-per-second", "nan")

    [acme] = keys("create", "acme", "--scopes", "read,online", "--expires", "90d", "--open-jobs", "3", key=ops)
    assert keys("list", key=acme["key"]) == (3, "scope_missing")
    [listed] = [one for one in keys("list", key=ops) if one["name"] == "acme"]
    assert listed["scopes"] == ["online", "read"]
    assert listed["expires_at"] - listed["created_at"] == 90 * 86_400
    assert listed["limits"]["open_jobs"] == 3

    [limited] = keys("limits", "acme", "--open-jobs", "none", "--sinks", "a/*,b", "--expires", "none", key=ops)
    assert (limited["limits"]["open_jobs"], limited["limits"]["sinks"]) == (None, ["a/*", "b"])
    assert limited["expires_at"] is None
    assert keys("limits", "acme", key=ops) == [limited]
    [rotated] = keys("rotate", "acme", "--grace", "1h", key=ops)
    assert rotated["key"] != acme["key"]
    assert keys("list", key=acme["key"]) == (3, "scope_missing")  # it is still valid

    assert keys("revoke", "acme", key=ops)[0]["revoked_at"] is not None
    assert keys("list", key=rotated["key"]) == (3, "invalid_api_key")
    assert keys("delete", "acme", key=ops) == (3, "key_in_use")
    assert keys("revoke", "nobody", key=ops) == (3, "key_not_found")
    assert keys("purge", "acme", key=ops) == (2, "usage")  # nobody is there to be asked
    [purged] = keys("purge", "acme", "--yes", key=ops)
    assert purged["purged_at"]
    assert (purged["name"], set(purged["left"].values())) == ("acme", {0})
    assert keys("delete", "acme", key=ops)[0]["deleted"]
    assert keys("create", "acme", key=ops)[0]["name"] == "acme"


def test_the_address_lies_in_the_data_folder_for_its_user_alone_and_none_is_guessed(
    through_redis: Keys, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create = ("create", '{"name": "ops"}')
    monkeypatch.delenv("EMBEDQ_REDIS_URL")
    assert through_redis(*create) == (2, "settings")
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://user:secret@127.0.0.1:1/0")
    assert through_redis(*create) == (4, "redis_unavailable")
    (tmp_path / "redis-url").write_text("redis://somebody-else")
    (tmp_path / "redis-url").chmod(0o644)
    write_address(tmp_path, redis_url)
    assert (tmp_path / "redis-url").stat().st_mode & 0o777 == 0o600
    [made] = through_redis("--data", str(tmp_path), *create)  # a data folder that is named wins
    assert made["key"].startswith("embedq_")


def test_a_key_that_has_ended_manages_nothing(keys: Keys, create: Keys) -> None:
    create("ops", expires_in=2)

    def another() -> bool:
        made = create(f"ops{next(numbers)}")
        return isinstance(keys("list", key=made), list)

    numbers = iter(range(1000))
    wait_until(another, message="the first key has ended")


def test_keys_and_owners_come_back_to_a_redis_that_has_lost_them(
    app: ServedApp, keys: Keys, create: Keys, through_redis: Keys, redis_client: redis.Redis
) -> None:
    """And purged owners stay purged."""
    ops, digits = create("ops"), {"acme": "0", "gone": "1", "kept": "2"}
    owners = {name: f"owner_{digit * 20}" for name, digit in digits.items()}
    assert create("other", "acme") == (3, "invalid_value")
    texts = {name: create(name, owner) for name, owner in owners.items()}
    assert create("other", owners["acme"]) == (3, "key_exists"), "an owner is given to one key"
    early = export_of(through_redis)
    for name in ("acme", "gone"):
        keys("revoke", name, key=ops)
        keys("purge", name, "--yes", key=ops)
    keys("delete", "gone", key=ops)
    before, export = keys("list", key=ops), export_of(through_redis)
    assert {one["name"]: one["owner"] for one in before}.items() >= {
        "acme": owners["acme"],
        "kept": owners["kept"],
    }.items()
    assert not [text for text in (ops, *texts.values()) if text in export]

    redis_client.flushall()
    for _ in range(2):  # twice is no matter, and the order is none: somebody may have put the lines together
        told = through_redis("import", text="".join(reversed(export.splitlines(keepends=True))))
        assert told == [{"imported": 3, "refused": {}}]
        wait_until(lambda: keys("list", key=ops) == before, message="the keys are as before")
    for name in ("acme", "gone"):
        assert create(f"{name}2", owners[name]) == (3, "key_exists")
    [told] = through_redis("import", text=early)
    assert told["refused"]["gone"].startswith("everything of its owner was deleted")
    assert keys("list", key=texts["gone"]) == (3, "invalid_api_key")
    keys("rotate", "kept", key=ops)
    [told] = through_redis("import", text=export)
    assert [*told["refused"]] == ["kept"]
    assert through_redis("import", text="no export\n") == (3, "invalid_value")
    assert name_of(app, ops) == "ops"
    keys("delete", "acme", key=ops)


def test_no_owner_and_no_name_of_the_environment_is_given_to_another_key(
    keys: Keys, create: Keys, through_redis: Keys, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = create("ops")
    create("acme", environment_owner("bob"))
    keys("create", "ann", key=ops)
    export = export_of(through_redis)
    monkeypatch.setenv("EMBEDQ_API_KEYS", KEYS)
    assert create("other", environment_owner("ann")) == create("bob") == (3, "key_exists")
    assert through_redis("import", text=export) == [{"imported": 3, "refused": {}}], "they were there before"
    for name in redis_client.scan_iter("eq:*key*"):
        redis_client.delete(name)
    [told] = through_redis("import", text=export)
    assert {*told["refused"]} == {"acme", "ann"}
    assert all(reason.startswith("EMBEDQ_API_KEYS has") for reason in told["refused"].values())
    wait_until(lambda: keys("list", key=ops)[0] != 3, message="the key is known again")
    assert [one["name"] for one in keys("list", key=ops)] == ["ops"]
