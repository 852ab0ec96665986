"""The dashboard and its provisioning, as far as that can be told without Grafana."""

import itertools
import re
from typing import Any

import yaml

from tests.observe.deployed import DASHBOARD, GRAFANA, alerts, panels

ROWS = ("Overview", "Latency", "Traffic", "Errors", "Saturation", "Queues", "Workers", "Redis", "Batches and ingestion")


def drawn() -> list[dict[str, Any]]:
    return [panel for panel in panels() if panel["type"] != "row"]


def test_there_are_rows_for_the_golden_signals_and_for_each_part() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert tuple(rows[: len(ROWS)]) == ROWS


def test_every_panel_says_what_it_shows_in_which_unit() -> None:
    for panel in drawn():
        assert panel["description"], panel["title"]
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for row in [DASHBOARD["panels"], *(panel["panels"] for panel in DASHBOARD["panels"] if panel.get("panels"))]:
        for one, other in itertools.combinations([panel["gridPos"] for panel in row], 2):
            apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
            assert one["x"] + one["w"] <= 24


def test_lines_are_told_apart_by_labels_that_their_query_keeps() -> None:
    for panel in drawn():
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert panel["type"] != "timeseries" or len(legends) == len(set(legends)), panel["title"]
        for target in panel["targets"]:
            kept = {name for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for name in by.split(", ")}
            if "by (" in target["expr"]:
                named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                assert named <= kept, (panel["title"], target)


def test_every_variable_that_is_used_is_there() -> None:
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = {name for panel in drawn() for t in panel["targets"] for name in re.findall(r"\$(\w+)", t["expr"])}
    assert used == {"model"}
    assert known == {"model", "datasource"}
    assert {t["datasource"]["uid"] for panel in drawn() for t in panel["targets"]} == {"${datasource}"}


def test_alerts_are_named_as_the_panels_look_for_them() -> None:
    assert {alert["alert"][:6] for alert in alerts()} == {"Embedq"}


def test_grafana_is_told_where_both_are() -> None:
    (source,) = yaml.safe_load((GRAFANA / "datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((GRAFANA / "dashboards/provider.yml").read_text())["providers"]
    assert (source["type"], source["uid"], source["isDefault"]) == ("prometheus", "prometheus", True)
    assert source["url"] == "http://prometheus:9090"
    assert (provider["type"], provider["options"]["path"]) == ("file", "/etc/grafana/provisioning/dashboards")
