"""What `docker compose --profile observe up` reads, as values."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.source_tree import CHECKOUT

OBSERVE = CHECKOUT / "deploy/observe"
PROMETHEUS = OBSERVE / "prometheus"
GRAFANA = OBSERVE / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/embedq.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())

_NAME = re.compile(r"\b(?:embedq|process)_\w+\b|\b(?:up|ALERTS)\b(?=[{)])")
_PARTS = re.compile("_(bucket|sum|count)$")
_VARIABLES = {"$model": ".*"}


def alerts() -> list[dict[str, Any]]:
    """The rules of alerts.yml."""
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> Iterator[dict[str, Any]]:
    """Those of the dashboard, rows among them, each before its own."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries() -> Mapping[str, str]:
    """What each panel and the annotation ask, by where it stands, with all variables filled in."""
    asked = {
        f"{panel['title']} ({panel['id']}{target['refId']})": target["expr"]
        for panel in panels()
        for target in panel.get("targets", ())
    }
    asked |= {a["name"]: a["expr"] for a in DASHBOARD["annotations"]["list"]}
    for variable, value in _VARIABLES.items():
        asked = {where: expr.replace(variable, value) for where, expr in asked.items()}
    return asked


def expressions() -> list[str]:
    """All PromQL: of alerts and of the dashboard."""
    return [*(alert["expr"] for alert in alerts()), *queries().values()]


def series_in(expression: str) -> set[str]:
    """Names of the series that an expression reads; of histograms that of the family."""
    found = _NAME.findall(re.sub(r'"[^"]*"', '""', expression))
    return {_PARTS.sub("", name) for name in found}
