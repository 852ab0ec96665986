"""One round: a load, a fault in the middle of it, the time until a caller is served again, and the load's account."""

import contextlib
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from bench.faults.account import Account
from bench.faults.callers import Batch, Client, Ingestion, Queries, Tasks
from bench.faults.catalog import Fault
from bench.faults.rig import Rig, now
from stack.testing import wait_until

_AFTERWARDS_S = 1.0
"""The load goes on for so long after the recovery."""
_PROBE_EVERY_S = 0.1
_PROBE_PATIENCE_S = 5.0
_RECOVERY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    """Lines of the batch, and documents of the ingestion."""

    lines: int
    documents: int


NORMAL, QUICK = Size(1_500, 400), Size(500, 200)


@dataclass(slots=True)
class Round:
    """What one round showed.

    Attributes:
        account: of all texts of the load.
        recovery_s: from the end of the cause to the first answer to a query that was asked after it.
        repeated: calls that had to be repeated, by reason.
        surplus: commits beyond one for each text. They count as doubled.
    """

    account: Account = field(default_factory=Account)
    recovery_s: float = 0.0
    repeated: Counter[str] = field(default_factory=Counter)
    surplus: int = 0


def run(rig: Rig, fault: Fault, name: str, size: Size = NORMAL) -> Round:
    """Injects the fault once. `name`: no other round has it, so that no text comes twice."""
    tasks = Tasks(rig.addresses, name)
    queries = [Queries(rig.addresses, f"{name} {n}") for n in range(2)]
    batch, ingestion = Batch(rig.addresses, name, size.lines), Ingestion(rig.addresses, name, size.documents)
    clients: list[Client] = [tasks, *queries, batch, ingestion]
    before = rig.committed()
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
        wait_until(lambda: _at_work(tasks, batch, ingestion), timeout_s=60, message="a load at work")
        since = fault.inject(rig)
        if fault.jobs:
            taken = rig.jobs_taken()
            wait_until(lambda: rig.jobs_taken() > taken, timeout_s=_RECOVERY_TIMEOUT_S, message="another job")
            recovery_s = now() - since
        probes, answered_s = _recovered(rig, since, name)
        time.sleep(_AFTERWARDS_S)
    for client in clients:
        client.settle()
    total = Round(recovery_s=recovery_s if fault.jobs else answered_s)
    for client in clients:
        total.account += client.account
        total.repeated += client.caller.repeated
        client.caller.close()
    if not fault.forgets:
        # A call without an answer was stored or not; one with an answer was stored once.
        known = total.account.completed + probes.count(True)
        unknown = probes.count(False) + sum(each.unanswered for each in queries)
        total.surplus = max(0, rig.committed() - before - known - unknown)
    return total


def _at_work(tasks: Tasks, batch: Batch, ingestion: Ingestion) -> bool:
    rows = batch.seen.get("request_counts") or {"completed": 0}
    chunks = ingestion.seen.get("chunks") or {"loaded": 0}
    return len(tasks.ids) > 20 and rows["completed"] > 0 and chunks["loaded"] > 0


def _recovered(rig: Rig, since: float, name: str) -> tuple[list[bool], float]:
    """Of each query that was sent whether it was answered; and the seconds from `since` to the first answer."""
    sent: list[Future[float]] = []
    with ThreadPoolExecutor(64) as pool:
        while now() < since + _RECOVERY_TIMEOUT_S:
            sent.append(pool.submit(_probe, rig, f"{name} probe {len(sent)}"))
            time.sleep(_PROBE_EVERY_S)
            if any(each.done() and each.result() > 0 for each in sent):
                break
    answered = [each.result() for each in sent if each.result()]
    if not answered:
        raise AssertionError(f"no answer within {_RECOVERY_TIMEOUT_S} s")
    return [bool(each.result()) for each in sent], min(answered) - since


def _probe(rig: Rig, text: str) -> float:
    """The moment of the answer; 0 without one."""
    address = rig.addresses()[-1]
    with contextlib.suppress(httpx.TransportError):
        answer = httpx.post(f"{address}/v1/embeddings", json={"input": text}, timeout=_PROBE_PATIENCE_S)
        return now() if answer.status_code == httpx.codes.OK else 0.0
    return 0.0
