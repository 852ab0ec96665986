"""`embedq keys` against a server whose first key it makes through Redis."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from embedq.cli import main
from embedq.cli.exit_codes import SOME_FAILED
from stack.data_folder import write_address
from tasks.records.api_keys import environment_owner
from tests.integration.api.served import KEYS, ServedApp
from tests.processes import wait_until

Keys = Callable[..., Any]


@pytest.fixture
def keys(
    serve: Callable[..., ServedApp], redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Keys:
    """Runs the command with a key; its JSON, or its exit code and code of error where it fails."""
    monkeypatch.setenv("EMBEDQ_URL", str(serve().client.base_url))
    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)

    def run(*arguments: str, key: str = "") -> Any:
        monkeypatch.setenv("EMBEDQ_API_KEY", key)
        code = main(["keys", *arguments, "--json"])
        told = capsys.readouterr()
        if code:
            return code, json.loads(told.err)["code"]
        return [json.loads(line) for line in told.out.splitlines()]

    return run


def test_a_key_from_its_first_day_to_its_last(keys: Keys) -> None:
    [made] = keys("create", "ops")
    assert set(made) == {"name", "key"}
    ops = made["key"]
    assert keys("create", "ops") == (3, "key_exists")
    assert keys("create", "no name") == (3, "invalid_value")
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


def test_people_get_lines(keys: Keys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDQ_API_KEY", "")
    assert main(["keys", "create", "ops", "--tokens-per-minute", "1000"]) == 0
    told = capsys.readouterr()
    monkeypatch.setenv("EMBEDQ_API_KEY", told.out)  # with its line break, as a shell's $(…) has none
    assert "told this once" in told.err

    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out == "ops online,bulk,files,ingest,read,operate,admin tokens_per_minute=1000\n"


def test_where_no_redis_is_named_nothing_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "create", "ops"]) == 2
    assert "EMBEDQ_REDIS_URL" in capsys.readouterr().err


def test_the_address_lies_in_the_data_folder_for_its_user_alone(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redis-url").write_text("redis://somebody-else")
    (tmp_path / "redis-url").chmod(0o644)
    write_address(tmp_path, redis_url)
    assert (tmp_path / "redis-url").stat().st_mode & 0o777 == 0o600
    assert main(["keys", "create", "ops", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("embedq_")


def test_a_data_folder_that_is_named_wins(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://127.0.0.1:1/0")
    write_address(tmp_path, redis_url)
    assert main(["keys", "create", "ops", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("embedq_")


def test_a_key_that_has_ended_manages_nothing(keys: Keys) -> None:
    [_] = keys("create", "ops", "--expires", "1s")

    def another() -> bool:
        name = f"ops{next(numbers)}"
        [made] = keys("create", name)
        own = [one["scopes"] for one in keys("list", key=made["key"]) if isinstance(one, dict) and one["name"] == name]
        return own != [] and "admin" in own[0]

    numbers = iter(range(100))
    wait_until(another, message="the first key has ended")


def test_a_redis_that_is_away_is_said_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://user:secret@127.0.0.1:1/0")
    assert main(["keys", "create", "ops"]) == 4
    told = capsys.readouterr()
    assert "secret" not in told.out + told.err


def test_keys_and_owners_come_back_to_a_redis_that_has_lost_them(
    keys: Keys, tmp_path: Path, redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    [ops] = keys("create", "ops")
    [acme] = keys("create", "acme", "--scopes", "read", "--open-jobs", "3", key=ops["key"])
    before = keys("list", key=ops["key"])
    assert main(["keys", "export"]) == 0
    export = capsys.readouterr().out
    assert len(export.splitlines()) == 2
    assert ops["key"] not in export
    assert acme["key"] not in export
    (tmp_path / "keys").write_text(export)

    redis_client.flushall()
    assert keys("import", str(tmp_path / "keys")) == [{"imported": 2, "refused": []}]
    assert keys("list", key=ops["key"]) == before
    assert keys("import", str(tmp_path / "keys")) == [{"imported": 2, "refused": []}], "twice is no matter"

    keys("rotate", "acme", key=ops["key"])
    code = main(["keys", "import", str(tmp_path / "keys"), "--json"])
    assert (code, json.loads(capsys.readouterr().out)["refused"]) == (SOME_FAILED, ["acme"])
    (tmp_path / "keys").write_text("no export\n")
    assert keys("import", str(tmp_path / "keys")) == (3, "invalid_value")


def test_an_owner_is_given_to_one_key_and_never_after_a_purge(keys: Keys) -> None:
    [ops] = keys("create", "ops")
    owner = f"owner_{'0' * 20}"
    assert keys("create", "acme", "--owner", "acme") == (3, "invalid_value")
    keys("create", "acme", "--owner", owner)
    [listed] = [one for one in keys("list", key=ops["key"]) if one["name"] == "acme"]
    assert listed["owner"] == owner
    assert keys("create", "other", "--owner", owner, key=ops["key"]) == (3, "key_exists")

    keys("revoke", "acme", key=ops["key"])
    keys("purge", "acme", "--yes", key=ops["key"])
    keys("delete", "acme", key=ops["key"])
    assert keys("create", "acme", "--owner", owner) == (3, "key_exists")
    [_] = keys("create", "acme", key=ops["key"])


def test_an_import_gives_no_owner_back_who_was_purged(
    keys: Keys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [ops] = keys("create", "ops")
    [acme] = keys("create", "acme", key=ops["key"])
    assert main(["keys", "export"]) == 0
    (tmp_path / "keys").write_text(capsys.readouterr().out)
    keys("revoke", "acme", key=ops["key"])
    keys("purge", "acme", "--yes", key=ops["key"])
    keys("delete", "acme", key=ops["key"])

    assert main(["keys", "import", str(tmp_path / "keys")]) == SOME_FAILED
    told = capsys.readouterr()
    assert "acme is not imported: everything of its owner was deleted" in told.err
    assert [one["name"] for one in keys("list", key=ops["key"])] == ["ops"]
    assert keys("list", key=acme["key"]) == (3, "invalid_api_key")


@pytest.mark.thorough
def test_a_purged_owner_is_one_in_an_empty_redis_too(
    keys: Keys, tmp_path: Path, redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    [ops] = keys("create", "ops")
    owners = {name: f"owner_{digit * 20}" for name, digit in (("acme", "0"), ("gone", "1"))}
    for name, owner in owners.items():
        keys("create", name, "--owner", owner)
        keys("revoke", name, key=ops["key"])
        keys("purge", name, "--yes", key=ops["key"])
    keys("delete", "gone", key=ops["key"])
    before = keys("list", key=ops["key"])
    assert main(["keys", "export"]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    (tmp_path / "keys").write_text("".join(reversed(lines)))  # as somebody may have put them together

    redis_client.flushall()
    for _ in range(2):
        assert keys("import", str(tmp_path / "keys")) == [{"imported": 2, "refused": []}]
        assert keys("list", key=ops["key"]) == before
    for name, owner in owners.items():
        assert keys("create", f"{name}2", "--owner", owner) == (3, "key_exists")
    assert keys("purge", "acme", "--yes", key=ops["key"])[0]["purged_at"] == before[0]["purged_at"]
    keys("delete", "acme", key=ops["key"])


@pytest.mark.thorough
def test_no_owner_and_no_name_of_the_environment_is_given_to_another_key(
    keys: Keys,
    tmp_path: Path,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [ops] = keys("create", "ops")
    keys("create", "acme", "--owner", environment_owner("bob"))
    keys("create", "ann", key=ops["key"])
    assert main(["keys", "export"]) == 0
    (tmp_path / "keys").write_text(capsys.readouterr().out)
    monkeypatch.setenv("EMBEDQ_API_KEYS", KEYS)

    assert keys("create", "other", "--owner", environment_owner("ann")) == (3, "key_exists")
    assert keys("create", "bob") == (3, "key_exists")
    assert keys("import", str(tmp_path / "keys")) == [{"imported": 3, "refused": []}], "they were there before"
    for name in redis_client.scan_iter("eq:*key*"):
        redis_client.delete(name)
    assert main(["keys", "import", str(tmp_path / "keys")]) == SOME_FAILED
    told = capsys.readouterr()
    for name in ("acme", "ann"):
        assert f"{name} is not imported: EMBEDQ_API_KEYS has" in told.err
    assert [one["name"] for one in keys("list", key=ops["key"])] == ["ops"]
