"""A real Prometheus with our configuration scrapes a real stack, and pages when its worker is killed."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from stack.ports import free_port
from tests.observe.deployed import PROMETHEUS, expressions, series_in
from tests.processes import ApiProcess, Process, Roles, WorkerProcess, wait_until

MODEL = "org/model"
UNBORN = {"embedq_ledger_padded_tokens_total", "embedq_ledger_stale_units_total", "embedq_ledger_tokens_total"}
"""Appear with their first count."""


class Prometheus(Process):
    """The server with the configuration of the profile `observe`, but faster, and with one target that is known."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "250ms"}
        (scrape,) = config["scrape_configs"]
        assert scrape.pop("dns_sd_configs") == [
            {"names": ["api"], "type": "A", "port": 8000, "refresh_interval": "15s"}
        ]
        scrape["static_configs"] = [{"targets": [target]}]
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        rules = (PROMETHEUS / "alerts.yml").read_text()
        (folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 500ms", rules))
        address = f"127.0.0.1:{free_port()}"
        options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
        super().__init__("prometheus", [program, *options, "--log.level=warn"], folder)
        self._client = httpx.Client(base_url=f"http://{address}", timeout=10)

    def stop(self) -> int | None:
        """Ends it and the connections to it."""
        self._client.close()
        return super().stop()

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; None while the server does not answer."""
        try:
            answer = self._client.get(f"/api/v1/{path}", params=parameters)
        except httpx.TransportError:
            return None
        return answer.json()["data"] if answer.is_success else None

    def value(self, expression: str) -> float:
        """Of one sample; 0 without any."""
        found = self.ask("query", query=expression)
        return float(found["result"][0]["value"][1]) if found and found["result"] else 0

    def firing(self, alert: str) -> dict[str, Any] | None:
        """The alert of that name, if it fires."""
        known = (self.ask("alerts") or {"alerts": []})["alerts"]
        found = (a for a in known if a["labels"]["alertname"] == alert and a["state"] == "firing")
        return next(found, None)


@pytest.fixture
def api(roles: Roles) -> ApiProcess:
    return roles.api(served_name=MODEL)


@pytest.fixture
def worker(roles: Roles, api: ApiProcess) -> WorkerProcess:
    return roles.worker(served_name=MODEL, lease_s=1)


@pytest.fixture
def watching(prometheus: str, roles: Roles, api: ApiProcess, tmp_path: Path) -> Prometheus:
    """Prometheus, which scrapes that API; stopped with the roles, and its log is shown as theirs are."""
    server = Prometheus(prometheus, tmp_path / "prometheus", api.base_url.removeprefix("http://"))
    roles.processes.append(server)
    server.launch()
    server.wait_while_running(lambda: server.value('sum(up{job="embedq"})'), "its first scrape")
    return server


@pytest.mark.thorough
def test_prometheus_pages_when_work_waits_for_a_worker_that_was_killed(
    watching: Prometheus, api: ApiProcess, worker: WorkerProcess
) -> None:
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
    exposed = {f"{metric['metric']}" for metric in watching.ask("targets/metadata")}
    read = set().union(*map(series_in, expressions())) - {"up", "ALERTS"} - UNBORN
    assert {name for name in read if name not in exposed and name.removesuffix("_total") not in exposed} == set()
    assert [expr for expr in expressions() if watching.ask("query", query=expr) is None] == []

    worker.start()
    wait_until(lambda: watching.firing("EmbedqNoWorker") is None, message="it still fires")
