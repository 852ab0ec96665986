"""The alert rules: valid, each fires and does not, each says what to do, all read series that exist."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from api.app import create_app
from tests.observe.deployed import PROMETHEUS, alerts, expressions, series_in
from tests.source_tree import CHECKOUT
from worker_config.settings import load_settings

CASES = Path(__file__).parent / "alerts_test.yml"
RUNBOOK = "https://github.com/embedq/embedq/tree/main/docs/operations.md#"
OF_PROMETHEUS = {"up", "ALERTS"}


@pytest.fixture(scope="module")
def exposed() -> str:
    """What a process shows that has served nothing yet."""
    rendered: bytes = create_app(load_settings()).state.metrics.render()
    return rendered.decode()


def test_the_configuration_is_valid(promtool: Callable[..., None]) -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


def test_each_alert_fires_when_its_condition_has_lasted_and_not_before(promtool: Callable[..., None]) -> None:
    promtool("test", "rules", CASES)


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    fires = set()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        samples = [s for query in case.get("promql_expr_test", ()) for s in query.get("exp_samples", ())]
        fires |= {re.findall(r'alertname="(\w+)"', sample["labels"])[0] for sample in samples}
        fires |= {rule["alertname"] for rule in case.get("alert_rule_test", ()) if rule["exp_alerts"]}
    assert fires == {alert["alert"] for alert in alerts()}


def test_each_alert_says_what_to_do_and_where_to_read_on() -> None:
    page = (CHECKOUT / "docs/operations.md").read_text()
    sections = re.findall(r"^### (.+)$", page[page.index("## Runbook") :], flags=re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-"): heading for heading in sections}
    for alert in alerts():
        notes = alert["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
        anchor = notes["runbook_url"].removeprefix(RUNBOOK)
        section = page[page.index(f"### {anchors[anchor]}") :].partition("\n### ")[0]
        assert f"`{alert['alert']}`" in section, f"{alert['alert']} is not named where its runbook is"


def test_all_expressions_can_be_parsed(promtool: Callable[..., None], tmp_path: Path) -> None:
    rules = [{"record": f"expression_{number}", "expr": expr} for number, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))  # JSON is YAML
    promtool("check", "rules", file)


def test_all_expressions_read_series_that_exist_and_are_described(exposed: str) -> None:
    families = {re.sub("_total$", "", name) for name in re.findall(r"^# TYPE (\w+)", exposed, flags=re.MULTILINE)}
    page = (CHECKOUT / "docs/metrics.md").read_text()
    described = set(re.findall(r"\bembedq_\w+", page))
    read = set().union(*map(series_in, expressions())) - OF_PROMETHEUS
    assert len(read) > 40, "the search finds nothing any more"
    assert {name for name in read if name.startswith("embedq_")} - described == set()
    # Counters of the ledger appear with their first count; the test of a real scrape sees those of them.
    unborn = {name for name in read if name.startswith("embedq_ledger_")}
    assert {name.removesuffix("_total") for name in read - unborn} - families == set()


def test_the_names_of_series_are_as_prometheus_wants_them(promtool: Callable[..., None], exposed: str) -> None:
    promtool("check", "metrics", stdin=exposed)
