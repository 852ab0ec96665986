"""Where open tasks stand: how much work is served before them, and who does it. All frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.ledger.operations import Operation
from tasks.ledger.task import Lane, State

_BULK_WAITS_FOR = 7
"""Beside one part of bulk work so many of online work are served (`claim.lua`)."""


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """Who serves a queue.

    Attributes:
        workers: how many live.
        rate: estimated tokens per second of all of them, or the last known; None: never known.
        absent_ms: since when none lives; None where one does, and where that is not known.
        outage: code, moment in milliseconds and a sentence or "", while what needs the storage stands still; not from
            the script.
    """

    name: str
    workers: int
    rate: float | None
    absent_ms: int | None
    outage: tuple[str, int, str] | None = None


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """Where an open task stands.

    Attributes:
        cost: estimated tokens that are left of it.
        lane_cost: of all tasks of its lane, its own included; `online_cost`: of the online lane.
        owner_cost, owner_tasks: of its owner in this lane, its own included.
        other_owners: who have open tasks in the lane too.
        died_ms: when a worker of it died for the last time; 0: none did.
    """

    queue: QueueStanding
    lane: Lane
    state: State
    cost: int
    lane_cost: int
    owner_cost: int
    owner_tasks: int
    other_owners: int
    online_cost: int
    died_ms: int = 0

    @property
    def cost_before(self) -> int:
        """Estimated tokens of others that fair turns let go before its end.

        Each other task of its owner gets as much as this one at most, and each other owner as much as this owner. Bulk
        work goes beside online work, which has the larger part.
        """
        tasks = max(0, self.owner_tasks - 1)
        of_owner = min(max(0, self.owner_cost - self.cost), tasks * self.cost)
        of_others = min(max(0, self.lane_cost - self.owner_cost), self.other_owners * (of_owner + self.cost))
        before = of_owner + of_others
        if self.lane is Lane.BULK:
            before += min(self.online_cost, _BULK_WAITS_FOR * (before + self.cost))
        return before

    @property
    def seconds_before(self) -> float | None:
        """How long that takes at the measured rate; None where none was ever measured."""
        return self.cost_before / self.queue.rate if self.queue.rate else None

    @property
    def seconds_left(self) -> float | None:
        """Likewise until its own end."""
        return (self.cost_before + self.cost) / self.queue.rate if self.queue.rate else None


@dataclass(frozen=True, slots=True)
class Standings:
    """Some queues by name and some tasks by id, at one moment. Tasks that are not open are absent."""

    now_ms: int = 0
    queues: Mapping[str, QueueStanding] = field(default_factory=dict)
    tasks: Mapping[str, TaskStanding] = field(default_factory=dict)

    def queue(self, name: str) -> QueueStanding:
        """The queue; one that nobody has ever served if it was not asked for."""
        return self.queues.get(name) or QueueStanding(name, 0, None, None)


def read_standings(queues: Sequence[str], task_ids: Sequence[str]) -> Operation[Standings]:
    """Where tasks stand, of these queues and of others; the work does not depend on how much waits."""
    ids = tuple(task_ids)

    def read(reply: list[Any]) -> Standings:
        now_ms, of_queues, *rows = reply
        known = {queue.name: queue for queue in map(_queue_from_reply, of_queues)}
        found = zip(ids, rows, strict=True)
        return Standings(int(now_ms), known, {task_id: _task_from_reply(row, known) for task_id, row in found if row})

    return Operation("standing", "", (len(queues), *queues, *ids), read)


def _queue_from_reply(row: Sequence[Any]) -> QueueStanding:
    name, workers, rate, absent_ms = row
    since = int(absent_ms) if absent_ms and not workers else None
    return QueueStanding(name.decode(), workers, float(rate) if rate else None, since)


def _task_from_reply(row: Sequence[Any], queues: Mapping[str, QueueStanding]) -> TaskStanding:
    name, lane, state, cost, lane_cost, owner_cost, owner_tasks, others, online_cost, died_ms = row
    return TaskStanding(
        queue=queues[name.decode()],
        lane=Lane(lane.decode()),
        state=State(state.decode()),
        cost=cost,
        lane_cost=lane_cost,
        owner_cost=owner_cost,
        owner_tasks=owner_tasks,
        other_owners=max(0, others),
        online_cost=online_cost,
        died_ms=died_ms,
    )
