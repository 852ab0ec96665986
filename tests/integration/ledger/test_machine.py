"""The ledger's invariants under thousands of steps: rules chosen by hypothesis, and by weight from fixed seeds.

Both drive `simulation`. More of it by hand: `python -m tests.mutants --soak 200`.
"""

from collections import Counter
from typing import ClassVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tasks.ledger import Lane
from tests.integration.ledger.simulation import clients, fleet, steps
from tests.integration.ledger.simulation.ending import work_off
from tests.integration.ledger.simulation.invariants import check
from tests.integration.ledger.simulation.weighted import MODES, RATES, run
from tests.integration.ledger.simulation.world import World

pytestmark = pytest.mark.no_cover  # what runs here is covered without it, and is slower when it is traced

WEIGHTED_STEPS = 150
EXAMPLES = 40
STEPS_PER_EXAMPLE = 40

numbers = st.integers(0, 99)
requests = st.builds(
    clients.Request,
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=4),
    lane=st.sampled_from(Lane),
    owner=st.sampled_from("ab"),
    deadline_in_ms=st.sampled_from([None, None, 300, 5000]),
    poison=st.sampled_from([None, None, None, 0, 3]),
    alias=st.sampled_from([0, 0, 1, 2]),
    join=st.booleans(),
    other_body=st.sampled_from([False, False, False, True]),
    sent=st.sampled_from([True, True, True, False]),
    by_reference=st.booleans(),
)
turns = st.builds(
    fleet.Turn,
    worker=st.integers(0, 2),
    budget=st.sampled_from([5, 30, 100, 1000]),
    max_units=st.sampled_from([1, 3, 64]),
    linger_ms=st.sampled_from([0, 800, 800, 800]),
    deed=st.sampled_from([*["commit"] * 8, *fleet.DEEDS]),
    alone=st.booleans(),
    sent=st.sampled_from([True] * 9 + [False]),
    part=st.sampled_from([0, 0.3, 0.5, 1]),
    suspect=st.booleans(),
    hears=st.booleans(),
    stops=st.sampled_from([False] * 9 + [True]),
    large=st.sampled_from([1, 4]),
)


class LedgerMachine(RuleBasedStateMachine):
    """The rules. A subclass of each test brings the Redis and collects the counts."""

    client: ClassVar[redis.Redis]
    stats: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.client)
        self.broken = True

    # Rules are switched off at random per example, so that each begins with something to do, and `work` hears bells.
    @initialize(first=st.lists(requests, min_size=1, max_size=3))
    def begin(self, first: list[clients.Request]) -> None:
        for request in first:
            clients.submit(self.world, request)
            check(self.world)

    @rule(request=requests)
    def submit(self, request: clients.Request) -> None:
        clients.submit(self.world, request)

    @precondition(lambda self: self.world.tasks)
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        clients.cancel(self.world, number)

    @precondition(lambda self: self.world.tasks)
    @rule(number=numbers)
    def forget(self, number: int) -> None:
        clients.forget(self.world, number)

    @precondition(lambda self: self.world.tasks)
    @rule(number=numbers, for_ms=st.sampled_from([1, 500, 5000]), shorten=st.booleans())
    def want(self, number: int, for_ms: int, *, shorten: bool) -> None:
        clients.want(self.world, number, for_ms, shorten=shorten)

    @precondition(lambda self: self.world.messages)
    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        fleet.deliver(self.world, number)

    @precondition(lambda self: self.world.messages)
    @rule()
    def lose_message(self) -> None:
        clients.lose_message(self.world)

    @precondition(lambda self: self.world.messages < 2)
    @rule()
    def double_message(self) -> None:
        clients.double_message(self.world)

    @rule(chosen=st.lists(turns, min_size=1, max_size=6))
    def work(self, chosen: list[fleet.Turn]) -> None:
        for turn in chosen:
            if self.world.messages:
                fleet.deliver(self.world, turn.worker)
            fleet.work(self.world, turn)
            check(self.world)

    @precondition(lambda self: any(worker.state != "idle" for worker in self.world.workers))
    @rule(number=numbers, comes_back=st.booleans())
    def crash(self, number: int, *, comes_back: bool) -> None:
        fleet.crash(self.world, number, comes_back=comes_back)

    @precondition(lambda self: self.world.zombies)
    @rule(number=numbers)
    def zombie_commit(self, number: int) -> None:
        fleet.zombie_commit(self.world, number)

    @precondition(lambda self: self.world.zombies)
    @rule(number=numbers)
    def zombie_release(self, number: int) -> None:
        fleet.zombie_release(self.world, number)

    @precondition(lambda self: self.world.left)
    @rule(number=numbers)
    def step(self, number: int) -> None:
        steps.take_in(self.world, number)

    @rule()
    def repeat_last(self) -> None:
        clients.repeat_last(self.world)

    @rule(ms=st.sampled_from([1, 200, 900, 1100, 5000]))
    def advance(self, ms: int) -> None:
        clients.advance(self.world, ms)

    @rule()
    def watch(self) -> None:
        clients.watch(self.world)

    @rule(number=numbers, late=st.booleans())
    def exchange(self, number: int, *, late: bool) -> None:
        fleet.exchange(self.world, number, late=late)

    @rule(number=numbers, rate=st.sampled_from(RATES))
    def beat(self, number: int, rate: float) -> None:
        fleet.beat(self.world, number, rate)

    @invariant()
    def everything_holds(self) -> None:
        self.broken = True
        check(self.world)
        self.broken = False

    def teardown(self) -> None:
        try:
            if not self.broken:  # or the end would hide what broke before it
                work_off(self.world)
        finally:
            self.stats.update(self.world.stats)
            self.stats["examples"] += 1
            self.world.close()


def shown(stats: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    names = ("examples", "steps", "tasks", "claims", "suspects", "convicted", "crashes", "lingering", "woken")
    more = (
        "lost_bells",
        "doubled_bells",
        "stale_commits",
        "repeats",
        "joined",
        "preemptions",
        "small_looks",
        "large_claims",
        "beats",
        "shared",
        "references",
        "exchanges",
        "model_changed",
        "successors",
        "handed",
        "handed_again",
        "handed_back",
    )
    with capsys.disabled():
        print(f"\n  {', '.join(f'{stats[name]} {name}' for name in names + more)}", end=" ")  # noqa: T201


def test_rules_in_any_order(redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    class Machine(LedgerMachine):
        client = redis_client
        stats: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS_PER_EXAMPLE,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
    shown(Machine.stats, capsys)
    assert Machine.stats["steps"] >= EXAMPLES * 20
    assert Machine.stats["claims"] >= EXAMPLES


def test_rules_by_weight(redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    stats = Counter[str]()
    modes = [*MODES[:-1] * 4, *[MODES[-1]] * 4]
    for seed, mode in enumerate(modes):
        stats += run(redis_client, seed, WEIGHTED_STEPS, mode).stats
        stats["examples"] += 1
    shown(stats, capsys)
    assert stats["steps"] >= len(modes) * WEIGHTED_STEPS
    # A run that never gets to these states would prove little.
    for reached in (
        "lingering",
        "woken",
        "suspects",
        "told",
        "suspects_beside_bulk",
        "innocent",
        "convicted",
        "stale_commits",
        "lost_bells",
        "preemptions",
        "small_looks",
        "large_claims",
        "joined",
        "shared",
        "references",
        "counted_out",
        "exchanges",
        "models_refused",
        "replaced",
        "model_changed",
        "successors",
        "taken_again",
        "missed",
        "handed_again",
        "handed_back",
    ):
        assert stats[reached] > 0, reached
    assert stats["handed"] >= 20


def test_a_run_can_be_repeated(redis_client: redis.Redis) -> None:
    first, second = (run(redis_client, 7, 60, "chaos").stats for _ in range(2))
    assert first == second
