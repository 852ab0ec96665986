"""Alert rules and the dashboard are valid, each alert fires and does not, and a real Prometheus pages."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from api.app import create_app
from tests.conftest import missing
from tests.processes import Process, Roles, free_port, wait_until
from tests.source_tree import CHECKOUT
from worker_config.settings import load_settings

PROMETHEUS = CHECKOUT / "deploy/observe/prometheus"
DASHBOARD: dict[str, Any] = json.loads((CHECKOUT / "deploy/observe/grafana/dashboards/embedq.json").read_text())
ALERTS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("alerts_cases.yml").read_text())
UP = {'up{job="embedq",instance="a:8000"}': "1x60", 'up{job="embedq",instance="b:8000"}': "1x60"}
RUNBOOK = "https://github.com/embedq/embedq/tree/main/docs/operations.md#"
ROWS = ["Overview", "Latency", "Traffic", "Errors", "Saturation", "Queues", "Workers", "Redis", "Batches and ingestion"]
MODEL = "org/model"


def panels() -> Iterator[dict[str, Any]]:
    """Those of the dashboard that draw something."""
    for panel in DASHBOARD["panels"]:
        yield from [each for each in (panel, *panel.get("panels", ())) if each["type"] != "row"]


def expressions() -> list[str]:
    """All PromQL, of alerts and of the dashboard."""
    drawn = [target["expr"] for panel in panels() for target in panel["targets"]]
    noted = [one["expr"] for one in DASHBOARD["annotations"]["list"]]
    return [one.replace("$model", ".*") for one in (*(alert["expr"] for alert in ALERTS), *drawn, *noted)]


def series_read() -> set[str]:
    """Names of the series that all expressions read; of histograms that of the family."""
    text = re.sub(r'"[^"]*"', '""', "\n".join(expressions()))
    found = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:embedq|process)_\w+\b", text)}
    assert len(found) > 40, "the search finds nothing any more"
    return found


def found(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        missing(f"no {name}: apt-get install prometheus")
    return program


def promtool(*arguments: str | Path, stdin: str | None = None) -> None:
    """Runs promtool and fails with what it says when it is not content."""
    command = [found("promtool"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tried(case: dict[str, Any]) -> dict[str, Any]:
    """A case as promtool wants it."""
    interval = case.get("interval", "1m")
    given = UP | case["series"] if not any(name.startswith("up{") for name in case["series"]) else case["series"]
    series = {name if name.startswith(("up{", "process_")) else f"embedq_{name}": given[name] for name in given}
    severity = {alert["alert"]: alert["labels"]["severity"] for alert in ALERTS}
    firing = {
        time: [
            {"alertname": name, "severity": severity[name], "alertstate": "firing"} | alerts[name] for name in alerts
        ]
        for time, alerts in case["firing"].items()
    }
    return {
        "name": case["name"],
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": time,
                "exp_samples": [
                    {"labels": f"ALERTS{{{','.join(f'{k}={json.dumps(v)}' for k, v in each.items())}}}", "value": 1}
                    for each in alerts
                ],
            }
            for time, alerts in firing.items()
        ],
    }


def test_each_alert_fires_when_its_condition_has_lasted_and_not_before(tmp_path: Path) -> None:
    rules = {"rule_files": [str(PROMETHEUS / "alerts.yml")], "evaluation_interval": "15s"}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(rules | {"tests": [tried(case) for case in CASES]}))
    promtool("test", "rules", file)
    fires = {name for case in CASES for alerts in case["firing"].values() for name in alerts}
    assert fires == {alert["alert"] for alert in ALERTS}


def test_each_alert_says_what_to_do_and_where_to_read_on() -> None:
    page = (CHECKOUT / "docs/operations.md").read_text()
    sections = page[page.index("## Runbook") :].split("\n### ")[1:]
    by_anchor = {each.partition("\n")[0].lower().replace(" ", "-"): each for each in sections}
    for alert in ALERTS:
        notes = alert["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
        assert f"`{alert['alert']}`" in by_anchor[notes["runbook_url"].removeprefix(RUNBOOK)]


def test_all_expressions_read_series_that_exist_and_are_described(tmp_path: Path) -> None:
    exposed = create_app(load_settings()).state.metrics.render().decode()
    promtool("check", "metrics", stdin=exposed)
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    rules = [{"record": f"expression_{number}", "expr": expr} for number, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))  # JSON is YAML
    promtool("check", "rules", file)
    families = {re.sub("_total$", "", name) for name in re.findall(r"^# TYPE (\w+)", exposed, flags=re.MULTILINE)}
    described = set(re.findall(r"\bembedq_\w+", (CHECKOUT / "docs/metrics.md").read_text()))
    assert {name for name in series_read() if name.startswith("embedq_")} - described == set()
    # Counters of the ledger appear with their first count.
    born = {name for name in series_read() if not name.startswith("embedq_ledger_")}
    assert {name.removesuffix("_total") for name in born} - families == set()


def test_there_are_rows_for_the_golden_signals_and_every_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"][: len(ROWS)] == ROWS
    for panel in panels():
        assert panel["description"], panel["title"]
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            kept = {name for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for name in by.split(", ")}
            assert not kept or {*re.findall(r"{{(\w+)}}", target["legendFormat"])} <= kept, (panel["title"], target)


class Prometheus(Process):
    """The server with the configuration of the profile `observe`, but faster, and with one target that is known."""

    def __init__(self, folder: Path, target: str) -> None:
        address = f"127.0.0.1:{free_port()}"
        options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
        super().__init__("prometheus", [found("prometheus"), *options, "--log.level=warn"], folder)
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "250ms"}
        (scrape,) = config["scrape_configs"]
        resolved = {"names": ["api"], "type": "A", "port": 8000, "refresh_interval": "15s"}
        assert scrape.pop("dns_sd_configs") == [resolved]
        scrape["static_configs"] = [{"targets": [target]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        rules = (PROMETHEUS / "alerts.yml").read_text()
        (folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 500ms", rules))
        self._url = f"http://{address}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; None while the server does not answer."""
        try:
            answer = httpx.get(f"{self._url}/{path}", params=parameters, timeout=10)
        except httpx.TransportError:
            return None
        return answer.json()["data"] if answer.is_success else None

    def value(self, expression: str) -> float:
        """Of one sample; 0 without any."""
        answer = self.ask("query", query=expression)
        return float(answer["result"][0]["value"][1]) if answer and answer["result"] else 0

    def firing(self, alert: str) -> dict[str, Any] | None:
        """The alert of that name, if it fires."""
        known = (self.ask("alerts") or {"alerts": []})["alerts"]
        return next((a for a in known if a["labels"]["alertname"] == alert and a["state"] == "firing"), None)


@pytest.mark.thorough
def test_prometheus_pages_when_work_waits_for_a_worker_that_was_killed(roles: Roles, tmp_path: Path) -> None:
    api, worker = roles.api(served_name=MODEL), roles.worker(served_name=MODEL, lease_s=1)
    watching = Prometheus(tmp_path / "prometheus", api.base_url.removeprefix("http://"))
    roles.processes.append(watching)
    watching.launch()
    watching.wait_while_running(lambda: watching.value('sum(up{job="embedq"})'), "its first scrape")
    with api.client() as client:
        client.post("/v1/embeddings", json={"input": ["one", "two"]}).raise_for_status()
        wait_until(lambda: watching.value('sum(embedq_ended_items_total{outcome="completed"})') == 2)
        assert watching.value(f'embedq_task_seconds_count{{model="{MODEL}",lane="online"}}') == 1
        assert watching.firing("EmbedqNoWorker") is None

        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        client.post("/v1/tasks", json={"input": ["three"]}).raise_for_status()
        alert = wait_until(lambda: watching.firing("EmbedqNoWorker"), message="nobody is paged")

    assert alert["labels"] == {"alertname": "EmbedqNoWorker", "model": MODEL, "severity": "critical"}
    assert alert["annotations"]["summary"] == f"Work waits and no worker serves {MODEL}."
    worker.start()
    wait_until(lambda: watching.firing("EmbedqNoWorker") is None, message="it still fires")
