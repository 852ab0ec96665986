"""docker-compose.yml: its profile `observe`, its variables, and what a role may not know."""

import re
from typing import Any

import pytest

from tests.observe.deployed import COMPOSE
from tests.source_tree import CHECKOUT

OBSERVERS = ("prometheus", "grafana")


@pytest.fixture(params=OBSERVERS)
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = COMPOSE["services"][request.param]
    return found


def test_without_the_profile_nothing_changes() -> None:
    others = {name for name, service in COMPOSE["services"].items() if "profiles" not in service}
    assert others == {"redis", "api", "worker", "documents-worker"}


def test_an_observer_is_hardened_like_every_other_service(service: dict[str, Any]) -> None:
    assert service["profiles"] == ["observe"]
    for name in ("restart", "read_only", "tmpfs", "cap_drop", "security_opt"):
        assert service[name] == COMPOSE["x-hardened"][name]
    assert service["mem_limit"]
    assert service["healthcheck"]["test"]


def test_an_observer_is_reached_from_this_machine_alone(service: dict[str, Any]) -> None:
    (port,) = service["ports"]
    assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+_PORT:-\d+\}:\d+", port)


def test_the_image_of_an_observer_has_a_version_and_a_digest(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"\$\{\w+_IMAGE:-[\w/]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}\}", service["image"])


def test_an_observer_mounts_what_exists_and_may_not_change_it(service: dict[str, Any]) -> None:
    folders = [volume.split(":") for volume in service["volumes"] if volume.startswith("./")]
    named = {volume.partition(":")[0] for volume in service["volumes"] if not volume.startswith("./")}
    assert [(CHECKOUT / folder).is_dir() for folder, _, _ in folders] == [True] * len(folders)
    assert {mode for _, _, mode in folders} == {"ro"}
    assert named <= set(COMPOSE["volumes"])


def test_nobody_can_change_anything_in_grafana() -> None:
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_the_base_of_our_images_is_named_by_one_digest() -> None:
    named = [(CHECKOUT / file).read_text() for file in ("docker-compose.yml", "deploy/Dockerfile")]
    assert len({image for text in named for image in re.findall(r"python:[\w.-]+@sha256:[0-9a-f]{64}", text)}) == 1
    assert re.search(r"redis:[\w.-]+@sha256:[0-9a-f]{64}\}", named[0])


def test_no_health_check_follows_a_proxy() -> None:
    """Docker hands its own proxy to containers, which is not for what listens on loopback."""
    checks = {name: " ".join(service["healthcheck"]["test"]) for name, service in COMPOSE["services"].items()}
    by_http = {name: check for name, check in checks.items() if "http" in check}
    assert by_http.keys() == {"api", "prometheus", "grafana"}
    assert "urllib" not in by_http["api"]
    assert all("-Y off" in by_http[name] for name in ("prometheus", "grafana"))


def test_no_role_is_told_the_redis_url_of_another() -> None:
    """`env_file` hands it all of .env, where they stand with their passwords."""
    urls = set(re.findall(r"\$\{(\w+_REDIS_URL)", (CHECKOUT / "docker-compose.yml").read_text())) - {"EMBEDQ_REDIS_URL"}
    roles = [service["environment"] for service in COMPOSE["services"].values() if "env_file" in service]
    assert len(roles) == len(urls) == 3
    assert [{name: role.get(name) for name in urls} for role in roles] == [dict.fromkeys(urls, "")] * 3


def test_every_variable_of_compose_is_described() -> None:
    named = set(re.findall(r"\$\{(\w+)", (CHECKOUT / "docker-compose.yml").read_text()))
    page = (CHECKOUT / "docs/operations.md").read_text()
    inner = {"ENV_FILE", "IMAGE_TAG"}  # of deploy/smoke
    assert {name for name in named - inner if f"`{name}" not in page and f"`{name}=" not in page} == set()
