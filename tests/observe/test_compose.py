"""docker-compose.yml: its profile `observe`, its variables, and what a role may not know."""

import re
from typing import Any

import pytest
import yaml

from tests.source_tree import CHECKOUT

TEXT = (CHECKOUT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_an_observer_is_hardened_pinned_and_reached_from_this_machine_alone(name: str) -> None:
    service = SERVICES[name]
    assert service["profiles"] == ["observe"]
    for each in ("restart", "read_only", "tmpfs", "cap_drop", "security_opt"):
        assert service[each] == COMPOSE["x-hardened"][each]
    assert service["mem_limit"]
    (port,) = service["ports"]
    assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+_PORT:-\d+\}:\d+", port)
    assert re.fullmatch(r"\$\{\w+_IMAGE:-[\w/]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}\}", service["image"])
    for folder, _, mode in (volume.split(":") for volume in service["volumes"] if volume.startswith("./")):
        assert ((CHECKOUT / folder).is_dir(), mode) == (True, "ro")
    # Docker hands its own proxy to containers, which is not for what listens on loopback.
    assert "-Y off" in " ".join(service["healthcheck"]["test"])


def test_without_the_profile_nothing_changes_and_nobody_can_change_anything_in_grafana() -> None:
    others = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert others == {"redis", "api", "worker", "documents-worker"}
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_no_role_is_told_the_redis_url_of_another() -> None:
    """`env_file` hands it all of .env, where they stand with their passwords."""
    urls = set(re.findall(r"\$\{(\w+_REDIS_URL)", TEXT)) - {"EMBEDQ_REDIS_URL"}
    roles = [service["environment"] for service in SERVICES.values() if "env_file" in service]
    assert len(roles) == len(urls) == 3
    assert [{name: role.get(name) for name in urls} for role in roles] == [dict.fromkeys(urls, "")] * 3


def test_every_variable_of_compose_is_described() -> None:
    page = (CHECKOUT / "docs/operations.md").read_text()
    named = set(re.findall(r"\$\{(\w+)", TEXT)) - {"ENV_FILE", "IMAGE_TAG"}  # those are of deploy/smoke
    assert {name for name in named if not re.search(f"`{name}[`= ]", page)} == set()
