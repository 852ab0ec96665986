"""The rules of the world, of which hypothesis chooses the order; it shrinks what it finds."""

from collections import Counter
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.simulation import clients, fleet
from tests.simulation.invariants import check
from tests.simulation.repeats import repeat
from tests.simulation.settling import settle
from tests.simulation.world import LANES, OWNERS, World

small = st.integers(0, 5)
requests = st.builds(
    clients.Request,
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), min_size=1, max_size=4),
    lane=st.sampled_from(LANES),
    owner=st.sampled_from(OWNERS),
    deadline_ms=st.sampled_from([0, 0, 0, 300, 5000, 12_000]),
    poison=st.sampled_from([None, None, None, 0, 3]),
    alias=st.sampled_from([0, 0, 1, 2]),
    sent=st.sampled_from([True, True, False]),
    together=st.sampled_from([1, 1, 3]),
)
turns = st.builds(
    fleet.Turn,
    stream=small,
    budget=st.sampled_from([5, 30, 100, 1000]),
    most=st.sampled_from([1, 3, 64]),
    linger_ms=st.sampled_from([0, 800, 800]),
    deed=st.sampled_from(fleet.DEEDS),
    sent=st.sampled_from([True] * 9 + [False]),
    online_only=st.sampled_from([False] * 5 + [True]),
    passes=st.sampled_from([""] * 6 + [*OWNERS]),
)


class LedgerMachine(RuleBasedStateMachine):
    """The rules. A subclass brings the Redis and collects the counts."""

    client: ClassVar[Any]
    stats: ClassVar[Counter[str]]

    @initialize(first=st.lists(requests, min_size=1, max_size=3))
    def begin(self, first: list[clients.Request]) -> None:
        self.world = World(self.client, stats=self.stats)
        fleet.populate(self.world)
        for request in first:
            clients.submit(self.world, request)

    @rule(request=requests)
    def submit(self, request: clients.Request) -> None:
        clients.submit(self.world, request)

    @rule(number=small, forget=st.booleans())
    def cancel(self, number: int, forget: bool) -> None:
        clients.cancel(self.world, number, forget=forget)

    @rule(number=small, ms=st.sampled_from([10, 10_000]), gone=st.booleans())
    def want(self, number: int, ms: int, gone: bool) -> None:
        clients.want(self.world, number, ms, gone=gone)

    @rule(owner=st.sampled_from(OWNERS), name=st.sampled_from(["revoked", "purged"]), draw=small)
    def mark(self, owner: str, name: str, draw: int) -> None:
        if draw == 0:  # seldom, or nothing would be left to do
            self.world.mark(owner, name)

    @rule(n=small)
    def deliver(self, n: int) -> None:
        fleet.deliver(self.world, n)

    @rule()
    def lose(self) -> None:
        self.world.lose_message()

    @rule()
    def double(self) -> None:
        self.world.double_message()

    @rule(turn=turns)
    def work(self, turn: fleet.Turn) -> None:
        fleet.work(self.world, turn)

    @rule(turn=turns, times=st.integers(1, 4), deed=st.sampled_from(["commit", "commit", "part"]))
    def work_on(self, turn: fleet.Turn, times: int, deed: str) -> None:
        """A stream goes on: single steps seldom get so far."""
        self.world.broker = max(1, self.world.broker)
        fleet.deliver(self.world, turn.stream // 2)
        for _ in range(times):
            fleet.work(self.world, fleet.Turn(turn.stream, turn.budget, 3, 800, deed))

    @rule(n=small)
    def crash(self, n: int) -> None:
        fleet.crash(self.world, n)

    @rule(n=small)
    def stop(self, n: int) -> None:
        fleet.stop(self.world, n)

    @rule(n=small)
    def beat(self, n: int) -> None:
        fleet.beat(self.world, n)

    @rule(number=small)
    def zombie(self, number: int) -> None:
        fleet.zombie_commit(self.world, number)

    @rule()
    def repeat(self) -> None:
        repeat(self.world)

    @rule(ms=st.sampled_from([1, 200, 900, 4000, 7000, -600]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def watch(self) -> None:
        self.world.watch()

    @invariant()
    def everything_is_as_it_must_be(self) -> None:
        if hasattr(self, "world"):
            check(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                settle(self.world)
            finally:
                self.world.close()


def run(client: Any, examples: int, steps: int) -> Counter[str]:
    """So many examples of the rules in any order; what has happened in them."""
    stats = Counter[str]()
    machine = type("Machine", (LedgerMachine,), {"client": client, "stats": stats})
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(machine, settings=how)
    return stats
