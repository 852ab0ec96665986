"""Settings: what is refused and how it is said, and names that nobody knows."""

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import CHECKOUT
from worker_config.settings import Settings, SettingsError, load_settings


@pytest.fixture
def env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `.env` that is read; the tests' own configuration reads none."""
    monkeypatch.setitem(Settings.model_config, "env_file", ".env")
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".env"


@pytest.mark.parametrize("name", ["redis_url", "redis_sentinels"])
def test_a_redis_url_that_cannot_be_read_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^EMBEDQ_{name.upper()}: ") as raised:
        load_settings(**{name: "redis://:secret@host:port/0"})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"redis_sentinels": "a"},
        {"redis_service": "ledger"},
        {"redis_sentinels": "a", "redis_service": "led ger"},
        {"redis_url": "unix:///r.sock", "redis_sentinels": "a", "redis_service": "ledger"},
    ],
)
def test_sentinels_and_the_name_of_their_service_belong_together(settings: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="EMBEDQ_REDIS_"):
        load_settings(**settings)


def test_a_misspelt_name_in_the_environment_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EMBEDQ_PROT", "1")
    load_settings()
    assert caplog.messages == ["unknown setting EMBEDQ_PROT is ignored; did you mean EMBEDQ_PORT?"]


def test_what_a_platform_says_of_a_service_of_this_name_is_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {
        "PORT": "tcp://10.0.0.1:9000",
        "PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "PORT_9000_TCP_ADDR": "10.0.0.1",
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "9000",
        "SERVICE_PORT_HTTP": "9000",
    }.items():
        monkeypatch.setenv(f"EMBEDQ_{name}", value)
    assert load_settings().port == 8000
    assert caplog.messages == []


def test_a_misspelt_name_in_the_file_is_a_warning_too(env_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    env_file.write_text("EMBEDQ_PROT=1\nexport EMBEDQ_THREADS=2\nOTHER=3\nEMBEDQ_API_KEY=secret\n")
    assert load_settings().threads == 2
    assert caplog.messages == ["unknown setting EMBEDQ_PROT in .env is ignored; did you mean EMBEDQ_PORT?"]
    assert "EMBEDQ_PROT" not in os.environ


@pytest.mark.parametrize(
    ("root", "storage", "refused"),
    [
        ("/data", "/data", True),
        ("/data", "/data/storage", True),
        ("file:///data", "/data/x/../storage", True),
        ("/da%20ta", "file:///da%20ta/storage", True),
        ("/data/storage/files", "file:///data/storage", True),
        ("/", "/data/storage", True),
        ("/data", "/data/.embedq/storage", False),
        ("/data/docs", "/data/storage", False),
        ("/data", "/database", False),
        ("s3://bucket/a", "s3://bucket/a/storage", True),
        ("s3://bucket/a/storage/files", "s3://bucket/a/storage", True),
        ("s3://bucket/a", "s3://bucket/ab", False),
        ("gcs://bucket/a", "gs://bucket/a/storage", True),
        ("abfs://container", "az://container/storage", True),
        ("s3://bucket", "/data", False),
        ("/data", "s3://data", False),
    ],
)
def test_a_root_of_ingestion_does_not_hold_the_storage(root: str, storage: str, refused: bool) -> None:
    given = {"ingest_roots": f"/srv/docs,{root}", "storage_url": storage}
    if not refused:
        assert load_settings(**given).storage_url == storage
        return
    with pytest.raises(SettingsError, match=r"entry 2 of EMBEDQ_INGEST_ROOTS.*EMBEDQ_STORAGE_URL"):
        load_settings(**given)


def test_a_model_has_several_names_the_first_of_them_canonical() -> None:
    several = load_settings(served_name="mini, text-embedding-3-small,text-embedding-ada-002")
    assert several.served_model_name == "mini"
    assert several.served_names == ("mini", "text-embedding-3-small", "text-embedding-ada-002")
    assert load_settings(model="org/name").served_names == ("org/name",)


def test_a_model_is_served_by_its_name_without_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    names = {"org/x@v1": "org/x", "x": "x", ".": "folder", str(tmp_path / "folder"): "folder", "/gone/model": "model"}
    assert {name: load_settings(model=name).served_model_name for name in names} == names


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ()),
        ("*", ("*",)),
        ("https://App.example.org , http://localhost:3000", ("https://app.example.org", "http://localhost:3000")),
        ("http://[::1]:8000", ("http://[::1]:8000",)),
    ],
)
def test_origins_of_web_pages(monkeypatch: pytest.MonkeyPatch, value: str, expected: tuple[str, ...]) -> None:
    monkeypatch.setenv("EMBEDQ_CORS_ORIGINS", value)
    assert load_settings().cors_origins == expected


def test_sinks_are_named_databases() -> None:
    urls = {"prod": "postgresql://u:p%2C@one:1,two:2/db?sslmode=require", "b-2_x": "postgres://h/d"}

    settings = Settings(sinks=",".join(f"{name}={url}" for name, url in urls.items()) + ", ")

    assert dict(settings.sinks) == urls
    assert "p%2C" not in repr(settings)
    assert Settings().sinks == ()


def test_a_key_of_the_settings_may_be_an_admin() -> None:
    keys = load_settings(api_keys=f"a:{'0' * 64}:admin,b:{'1' * 64}").api_keys
    assert [(key.name, key.admin) for key in keys] == [("a", True), ("b", False)]


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


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://me:secret@[::1]:6379/2?ssl_password=secret", "rediss://[::1]:6379/2"),
        ("unix://:secret@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_the_address_of_redis_is_shown_without_its_password(url: str, shown: str) -> None:
    assert load_settings(redis_url=url).redis_address == shown


def test_sentinels_are_shown_without_their_passwords() -> None:
    settings = load_settings(redis_sentinels="a, redis://:secret@b:1", redis_service="ledger")
    assert settings.redis_address == "ledger of the Sentinels redis://a:26379, redis://b:1"
    assert "secret" not in repr(settings)


REFUSED = [
    *(({"cors_origins": one}, r"EMBEDQ_CORS_ORIGINS=.*without a path") for one in ("a.org", "https://a.org/", "null")),
    *(({"cors_origins": one}, r"EMBEDQ_CORS_ORIGINS=.*without a path") for one in ("https://a.org/b", "https://*.org")),
    *(({"allowed_hosts": one}, r"EMBEDQ_ALLOWED_HOSTS=.*without a scheme") for one in ("https://a.org", "a.org:8000")),
    *(({"allowed_hosts": one}, r"EMBEDQ_ALLOWED_HOSTS=.*without a scheme") for one in ("a.org/", "[::1]")),
    ({"ingest_roots": "/data,docs"}, r"EMBEDQ_INGEST_ROOTS.*absolute path"),
    *(({name: "@documents"}, "must not begin with @") for name in ("served_name", "model")),
    ({"served_name": "a,b,a"}, r"EMBEDQ_SERVED_NAME.*twice"),
    ({"served_name": "a,b c"}, r"EMBEDQ_SERVED_NAME.*'b c' must have"),
    ({"served_name": "a," + "x" * 201}, r"EMBEDQ_SERVED_NAME.*1 to 200"),
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
