"""Every operation is one command of its client, and what only reads is no script."""

import redis
from redis.client import Monitor

from tasks.ledger.cancel import want
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import beat
from tests.integration.ledger.driver import Driver
from tests.ledger_builders import a_worker


def test_every_operation_is_one_round_trip(driver: Driver, redis_client: redis.Redis) -> None:
    def everything() -> None:
        task_id = driver.submit(deadline_in_ms=1000).task_id
        claim = driver.claim(linger_ms=10)
        driver.run(beat("m", a_worker(), None, 5000, tokens=[claim.token], lease_ms=1000))
        driver.run(want("m", task_id, 2000, gone=False))
        driver.commit(claim)
        driver.run(give_back("m", claim.token))
        driver.watch()
        driver.task(task_id)
        driver.result(task_id)
        driver.listed()
        driver.cancel(task_id)
        driver.forget(task_id)

    with driver.client.client() as other:  # type: ignore[no-untyped-call]
        driver.ledger.client = other
        everything()  # Redis knows the scripts now
        with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]
            everything()
            other.echo("end")
            sent = commands_of_clients(monitor)
    assert sent == [*["EVALSHA"] * 7, "HMGET", "HGETALL", *["EVALSHA"] * 3]


def commands_of_clients(monitor: Monitor) -> list[str]:
    """Up to the first ECHO."""
    sent = []
    for seen in monitor.listen():  # type: ignore[no-untyped-call]
        if seen["client_type"] == "lua":
            continue
        if seen["command"].startswith("ECHO"):
            break
        sent.append(seen["command"].split(" ")[0])
    return sent
