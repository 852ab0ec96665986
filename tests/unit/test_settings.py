"""Settings: what is refused and how it is said, and names that nobody knows."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import CHECKOUT
from worker_config.settings import Settings, SettingsError, load_settings


@pytest.mark.parametrize("name", ["redis_url", "redis_sentinels"])
def test_a_redis_url_that_cannot_be_read_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^EMBEDQ_{name.upper()}: ") as raised:
        load_settings(**{name: "redis://:secret@host:port/0"})
    assert "secret" not in str(raised.value)


def test_a_misspelt_name_in_the_environment_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(Settings.model_config, "env_file", ".env")  # the tests' own configuration reads none
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("EMBEDQ_PROT=1\nexport EMBEDQ_THREADS=2\nOTHER=3\nEMBEDQ_API_KEY=secret\n")
    assert load_settings().threads == 2
    monkeypatch.setenv("EMBEDQ_PROT", "1")
    Path(".env").unlink()
    load_settings()
    assert caplog.messages == [
        f"unknown setting EMBEDQ_PROT{place} is ignored; did you mean EMBEDQ_PORT?" for place in (" in .env", "")
    ]


def test_what_a_platform_says_of_a_service_of_this_name_is_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("PORT", "PORT_9000_TCP", "PORT_9000_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP"):
        monkeypatch.setenv(f"EMBEDQ_{name}", "tcp://10.0.0.1:9000")
    assert load_settings().port == 8000
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("root", "storage", "refused"),
    [
        ("/data", "/data/storage", True),
        ("file:///data", "/data/x/../storage", True),
        ("/da%20ta", "file:///da%20ta/storage", True),
        ("/data/storage/files", "file:///data/storage", True),
        ("/data", "/data/.embedq/storage", False),
        ("/data", "/database", False),
        ("s3://bucket/a", "s3://bucket/a/storage", True),
        ("s3://bucket/a", "s3://bucket/ab", False),
        ("gcs://bucket/a", "gs://bucket/a/storage", True),
    ],
)
def test_a_root_of_ingestion_does_not_hold_the_storage(root: str, storage: str, refused: bool) -> None:
    given = {"ingest_roots": f"/srv/docs,{root}", "storage_url": storage}
    if not refused:
        assert load_settings(**given).storage_url == storage
        return
    with pytest.raises(SettingsError, match=r"entry 2 of EMBEDQ_INGEST_ROOTS.*EMBEDQ_STORAGE_URL"):
        load_settings(**given)


def test_a_model_is_served_by_its_name_without_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    names = {"org/x@v1": "org/x", "x": "x", ".": "folder", str(tmp_path / "folder"): "folder", "/gone/model": "model"}
    assert {name: load_settings(model=name).served_model_name for name in names} == names
    several = load_settings(served_name="mini, text-embedding-3-small")
    assert (several.served_model_name, several.served_names) == ("mini", ("mini", "text-embedding-3-small"))


def test_sinks_are_named_databases_whose_passwords_are_not_shown() -> None:
    urls = {"prod": "postgresql://u:p%2C@one:1,two:2/db?sslmode=require", "b-2_x": "postgres://h/d"}
    settings = Settings(sinks=",".join(f"{name}={url}" for name, url in urls.items()) + ", ")
    assert dict(settings.sinks) == urls
    assert "p%2C" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "192.0.2.1"}, False),
        ({"host": "192.0.2.1", "allow_unauthenticated": True}, True),
        ({"allow_unauthenticated": False}, False),
    ],
)
def test_without_keys_a_service_is_open_to_its_own_machine_alone(settings: dict[str, Any], *, is_open: bool) -> None:
    assert load_settings(**settings).open_without_keys is is_open


def test_containers_beside_it_may_call_it_whatever_other_names_it_has() -> None:
    (value,) = re.findall("^ +EMBEDQ_ALLOWED_HOSTS: (.+)$", (CHECKOUT / "docker-compose.yml").read_text(), re.MULTILINE)
    plain, named = (value.replace("${EMBEDQ_ALLOWED_HOSTS:-}", each) for each in ("", "embed.example.org"))
    assert load_settings(allowed_hosts=plain).allowed_hosts == ("api",)
    assert load_settings(allowed_hosts=named).allowed_hosts == ("api", "embed.example.org")


NAMED = {"redis_sentinels": "a, redis://:secret@b:1", "redis_service": "ledger"}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"redis_url": "rediss://me:secret@[::1]:6379/2?ssl_password=secret"}, "rediss://[::1]:6379/2"),
        ({"redis_url": "unix://:secret@/run/redis.sock?db=1"}, "unix:///run/redis.sock"),
        (NAMED, "ledger of the Sentinels redis://a:26379, redis://b:1"),
    ],
)
def test_the_address_of_redis_is_shown_without_its_password(settings: dict[str, str], shown: str) -> None:
    loaded = load_settings(**settings)
    assert loaded.redis_address == shown
    assert settings is not NAMED or "secret" not in repr(loaded)


REFUSED = [
    *(({"cors_origins": one}, r"EMBEDQ_CORS_ORIGINS=.*without a path") for one in ("a.org", "https://a.org/b", "null")),
    *(({"allowed_hosts": one}, r"EMBEDQ_ALLOWED_HOSTS=.*without a scheme") for one in ("https://a.org", "a.org:8000")),
    *(({"redis_sentinels": "a"} | one, "EMBEDQ_REDIS_") for one in ({}, {"redis_service": "led ger"})),
    ({"redis_url": "unix:///r.sock", "redis_sentinels": "a", "redis_service": "ledger"}, "EMBEDQ_REDIS_"),
    ({"ingest_roots": "/data,docs"}, r"EMBEDQ_INGEST_ROOTS.*absolute path"),
    *(({name: "@documents"}, "must not begin with @") for name in ("served_name", "model")),
    ({"served_name": "a,b,a"}, r"EMBEDQ_SERVED_NAME.*twice"),
    ({"served_name": "a,b c"}, r"EMBEDQ_SERVED_NAME.*'b c' must have"),
    ({"served_name": "x:online"}, r"EMBEDQ_SERVED_NAME .*must not hold a colon"),
    ({"model": "x:online"}, r"EMBEDQ_MODEL=x:online.* x@online names a revision"),
    ({"model": "org/x:main"}, r"EMBEDQ_MODEL=org/x:main.* org/x@main names a revision"),
    ({"model": "https://hf.org/org/x"}, r"EMBEDQ_MODEL=https://hf.org/org/x.* org/x@main names a revision"),
    ({"api_keys": "a:" + sha256(b"").hexdigest()}, r"^EMBEDQ_API_KEYS: .*the sum of an empty key"),
    ({"api_keys": "anonymous:" + "ab" * 32}, r"^EMBEDQ_API_KEYS: .*owns what is stored without keys"),
    ({"api_keys": "secret"}, r"^EMBEDQ_API_KEYS: .*name:sha256"),
    ({"api_keys": f"a:{'1' * 64}:owner"}, r"^EMBEDQ_API_KEYS: .*name:sha256:admin"),
    *(({"sinks": one}, "EMBEDQ_SINKS: ") for one in ("secret", "postgresql://u:secret@h/d", "a=mysql://u:secret@h/d")),
    *(({"sinks": one}, "EMBEDQ_SINKS: ") for one in ("a b=postgresql://u:secret@h/d", "a=postgresql:")),
    *(({"sinks": one}, "EMBEDQ_SINKS: ") for one in ("a=postgresql://u:secret@[h/d", "a=postgres://s,a=postgres://h")),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_with_its_name_and_without_its_secret(settings: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refusal:
        load_settings(**settings)
    assert "secret" not in str(refusal.value)
