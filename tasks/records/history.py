"""The service's last hour as Redis keeps it: steps of ten seconds, and in each what every web tier process counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tasks.ledger.operations import Operation
from tasks.ledger.replies import fields_from_reply

STEP_S = 10
MAX_MINUTES = 60
MAX_STEPS = MAX_MINUTES * 60 // STEP_S
_TTL_MS = (MAX_MINUTES + 2) * 60_000
_OF_PROCESS = "p:"


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What one process counted in a step.

    Attributes:
        seconds: that were counted, `STEP_S` unless the process started in this step or stood still.
        queries: synchronous requests that were answered with vectors, by the bucket of their latency.
        errors: synchronous requests that failed through no fault of the caller.
    """

    seconds: float
    queries: Mapping[int, int]
    errors: int


@dataclass(frozen=True, slots=True)
class SharedFigures:
    """What every process sees alike in a step, so that one of them suffices.

    Attributes:
        passages: texts per second whose vectors were committed; None: not known.
        backlog_s: of the model with the most work.
    """

    passages: float | None
    backlog_s: float


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One step. `processes`: the counts of each; empty when none could write."""

    processes: Sequence[ProcessCounts]
    shared: SharedFigures | None


@dataclass(frozen=True, slots=True)
class HistorySteps:
    """Some steps in a row, and the time of Redis's clock in Unix seconds: by this clock steps are numbered."""

    now_s: float
    steps: Sequence[HistoryStep]


def write_step(step: int, process: str, counts: ProcessCounts, shared: SharedFigures | None) -> Operation[float]:
    """Stores what a process counted in a step; the time of Redis's clock in Unix seconds.

    Args:
        step: Unix time over `STEP_S`.
        process: a name that no other process has or had.
        counts: its own.
        shared: None if it knows none.
    """
    shared_json = b"" if shared is None else orjson.dumps(shared)
    arguments = (step, process, orjson.dumps(counts, option=orjson.OPT_NON_STR_KEYS), shared_json, _TTL_MS)
    return Operation("history_write", "", arguments, lambda reply: int(reply) / 1000)


def read_steps(first: int, last: int) -> Operation[HistorySteps]:
    """The steps from `first` to `last`; none if `last` is lower, which still tells the time."""

    def read(reply: list[Any]) -> HistorySteps:
        now_ms, *steps = reply
        return HistorySteps(int(now_ms) / 1000, [_step_from_fields(fields_from_reply(flat)) for flat in steps])

    return Operation("history_read", "", (first, last), read)


def _step_from_fields(fields: Mapping[str, bytes]) -> HistoryStep:
    counts = [orjson.loads(value) for name, value in fields.items() if name.startswith(_OF_PROCESS)]
    shared = fields.get("shared")
    return HistoryStep(
        [
            ProcessCounts(one["seconds"], {int(bucket): n for bucket, n in one["queries"].items()}, one["errors"])
            for one in counts
        ],
        None if shared is None else SharedFigures(**orjson.loads(shared)),
    )
