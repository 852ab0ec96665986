"""`embedq debug` shows what Redis holds, and nothing of the texts."""

import json
from typing import Any

import pytest
import redis

from tasks.ledger.debug import main
from tasks.ledger.heartbeat import join
from tests.integration.ledger.driver import Driver, failed, succeeded
from tests.ledger_builders import a_model, a_worker


@pytest.fixture
def shown(redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)

    def show(*arguments: str) -> Any:
        assert main(arguments) == 0
        return json.loads(capsys.readouterr().out)

    return show


def test_a_task_is_shown_without_its_texts(driver: Driver, shown: Any) -> None:
    task_id = driver.submit((2, 20), (1, 5), (1, 5), metadata=b'{"name":"secret"}').task_id
    held = [piece for _ in range(2) for piece in driver.claim(max_pieces=1).pieces]
    done = driver.claim(max_pieces=1)
    driver.commit(done, [failed(done.pieces[0])])
    told = shown("task", task_id)
    assert (told["record"]["state"], told["record"]["total"], told["record"]["failed"]) == ("in_progress", 4, 1)
    assert set(told["pieces"]) == {piece.piece_id for piece in held}
    assert told["payload_bytes"] == {"0": len(b'["t0","t1"]'), "1": len(b'["t2"]')}
    assert [error[1] for errors in told["errors"].values() for error in errors["errors"]] == ["boom"]
    assert told["metadata_bytes"] == {"": 17}


def test_a_queue_is_shown_with_its_lines_claims_and_workers(driver: Driver, shown: Any) -> None:
    driver.run(join("m", a_worker("w", 100), a_model(), 5000))
    one, two = (driver.submit().task_id for _ in range(2))
    held = driver.claim(max_pieces=1, stamp=a_model().stamp)
    told = shown("queue", "m")
    assert (told["state"]["rate"], set(told["workers"]), told["claims"]) == (100, {"w"}, {held.token: f"{one} 0"})
    assert (set(told["online"]), set(told["leases"])) == ({two}, {held.token})
    driver.commit(held, [succeeded(held.pieces[0])])


def test_what_is_not_there_is_said(
    redis_client: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)
    assert main(["task", "none"]) == 1
    assert "no task none" in capsys.readouterr().err
