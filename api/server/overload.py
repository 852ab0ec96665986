"""The door: a process that gets more requests than it can handle turns the rest away, unread, and not all at once.

Without it thousands of requests share the event loop, each of them waits in it for longer than callers and the time
limits of Redis allow, and all end as errors: work is done and nobody gets an answer. To refuse costs time too, and a
caller who is refused may ask again at once. So refusals are paced: what they leave is for those who were let in.

Of several owners none fills the door, or the connections, for the others. Bulk work gives way before queries do, and
those before questions about what there is, which no door stops.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import Scope

from api.request.memory_budget import OWNER
from tasks.errors import Overloaded
from tasks.ledger import Lane
from tasks.ledger.executor import spread

TICK_S = 0.025
"""A hundred ticks a second took 1 % of a core from the model on the same machine."""
_KEPT = 0.9
"""Share of a stall that is kept per tick: a third is left after a quarter of a second."""


class StallProbe:
    """Measures how long the event loop was kept from running: by how much each tick comes late. 50 ms are a defect.

    Args:
        observe: called with the seconds each tick came late.
        clock: seconds that only grow.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._since_taken_s = 0.0
        self.longest_s = 0.0
        """Since the start."""
        self.recent_s = 0.0
        """The last one, or what is left of a longer one before it."""

    def start(self) -> None:
        """Begins to tick on the running loop."""
        self._due = self._clock() + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Ends the ticking."""
        if self._timer is not None:
            self._timer.cancel()

    def take_s(self) -> float:
        """The longest stall since the last call, in seconds."""
        taken, self._since_taken_s = self._since_taken_s, 0.0
        return taken

    def _tick(self) -> None:
        late_s = max(0.0, self._clock() - self._due)
        self.longest_s = max(self.longest_s, late_s)
        self.recent_s = max(late_s, self.recent_s * _KEPT)
        self._since_taken_s = max(self._since_taken_s, late_s)
        self._observe(late_s)
        self.start()


MAX_UNDER_WAY = 256
"""Submissions on their way to Redis and back: four round trips of what travels together (tasks.ledger.gather)."""
BUSY_UNDER_WAY = 32
"""With fewer, a late event loop had one slow thing to do. Refusing callers would not help it."""
MAX_LAG_S = 0.25
REFUSALS_PER_S = 200
REFUSALS_AT_ONCE = 100
LONGEST_DELAY_S = 5.0
LONGEST_CHEAP_DELAY_S = 1.0
"""Of refusals for which nothing was read and nobody asked."""
_RETRY_AFTER_S = 5
"""At most."""


_OWNERS = 1000
_BULK_PART = 0.75
"""Share of the submissions under way above which bulk work is turned away. The rest is for queries."""


class Door:
    """Counts the submissions and the refusals of one process.

    Args:
        lag_s: by how much the event loop was late of late, in seconds.
        most: submissions under way at a time.
        shared: whether there are several owners. One of them has no more under way than what is still free: alone half
            of the door, two of them a third each. A newcomer is let in however many there are.
    """

    def __init__(
        self, lag_s: Callable[[], float], most: int = MAX_UNDER_WAY, shared: Callable[[], bool] = lambda: False
    ) -> None:
        self._lag_s = lag_s
        self.most = most
        self._shared = shared
        self._of_owners: Counter[str] = Counter()
        self.under_way = 0
        self._next_s: dict[str, float] = {}
        """The turn of the last refusal of each owner."""

    async def check(self, owner: str, *, bulk: bool = False) -> None:
        """For a request that is about to be read. `bulk`: whatever it asks for, nobody waits for the result.

        Raises:
            Overloaded: it would only be turned away later.
        """
        if self._is_full(owner, bulk=bulk):
            await self.pace(owner)
            raise overloaded()

    def submitting(self, owner: str, *, bulk: bool = False) -> "Submitting":
        """Around one submission. Raises `Overloaded` as `check` does, at once."""
        return Submitting(self, owner, bulk)

    def enter(self, owner: str, *, bulk: bool) -> None:
        """Counts a submission of this owner until `leave`. Raises `Overloaded` where there is no room for it."""
        if self._is_full(owner, bulk=bulk):
            raise overloaded()
        self._count(owner, 1)

    def leave(self, owner: str) -> None:
        """A submission of this owner is stored or refused."""
        self._count(owner, -1)

    def _count(self, owner: str, n: int) -> None:
        self.under_way += n
        self._of_owners[owner] += n
        if not self._of_owners[owner]:
            del self._of_owners[owner]

    async def pace(self, owner: str, longest_s: float = LONGEST_DELAY_S) -> None:
        """Waits until it is the turn of one more refusal of this owner, who does not keep others from theirs.

        `longest_s`: a refusal that costs little is better made than held, with its connection, for seconds.
        """
        delay_s = self.delay_s(owner, time.monotonic(), longest_s)
        if delay_s:
            await asyncio.sleep(delay_s)

    def delay_s(self, owner: str, now_s: float, longest_s: float = LONGEST_DELAY_S) -> float:
        """Takes the next turn; how long it is until then."""
        earliest_s = now_s - REFUSALS_AT_ONCE / REFUSALS_PER_S
        if owner not in self._next_s and len(self._next_s) >= _OWNERS:
            self._next_s = {name: next_s for name, next_s in self._next_s.items() if next_s > earliest_s}
        next_s = max(self._next_s.get(owner, earliest_s), earliest_s) + 1 / REFUSALS_PER_S
        self._next_s[owner] = min(next_s, now_s + longest_s)
        return max(0.0, self._next_s[owner] - now_s)

    def _is_full(self, owner: str, *, bulk: bool) -> bool:
        most = min(self.most, BUSY_UNDER_WAY) if self._lag_s() > MAX_LAG_S else self.most
        free = (int(most * _BULK_PART) if bulk else most) - self.under_way
        return free <= 0 or (self._of_owners[owner] >= free and self._shared())


class Submitting:
    """One submission on its way through a door. A class, as a generator would cost each request twice as much."""

    __slots__ = ("_bulk", "_door", "_owner")

    def __init__(self, door: Door, owner: str, bulk: bool) -> None:
        self._door = door
        self._owner = owner
        self._bulk = bulk

    def __enter__(self) -> None:
        """Raises `Overloaded`."""
        self._door.enter(self._owner, bulk=self._bulk)

    def __exit__(self, *_: object) -> None:
        """However it ended."""
        self._door.leave(self._owner)


class Places:
    """The requests under way of one process by owner, so that no owner has all connections.

    Args:
        most: connections at a time.
        shared: whether there are several owners. One of them has half of the connections at most.
    """

    def __init__(self, most: int, shared: Callable[[], bool]) -> None:
        self.most = most
        self._shared = shared
        self._of_owners: Counter[str] = Counter()

    def enter(self, scope: Scope) -> None:
        """Counts the request of `scope`, whose owner is known, until `leave`.

        Raises:
            Overloaded: the owner has as many under way as it may. It may hold on to the connection, which makes room
                for another one as soon as that is needed.
        """
        owner = scope[OWNER]
        if _PLACE in scope:
            return
        if self._of_owners[owner] >= max(1, self.most // 2) and self._shared():
            raise overloaded()
        scope[_PLACE] = self
        self._of_owners[owner] += 1

    def leave(self, owner: str) -> None:
        """A request of the owner is over."""
        self._of_owners[owner] -= 1
        if not self._of_owners[owner]:
            del self._of_owners[owner]


_PLACE = "embedq.place"


def leave(scope: Scope) -> None:
    """The request of `scope` is over."""
    places: Places | None = scope.pop(_PLACE, None)
    if places is not None:
        places.leave(scope[OWNER])


def overloaded() -> Overloaded:
    """The error, with a random time to come back."""
    wait_s = spread(_RETRY_AFTER_S)
    return Overloaded(
        f"More requests came than this server can take in; try again in {wait_s} s. Nothing was stored.",
        retry_after_s=wait_s,
    )


Line = tuple[str, Lane, str]
"""Those who wait for each other: queue, lane and owner."""


class Returns:
    """Tells those for whom there is no room when to come back: one after the other.

    The ledger says when there is room for one. If all who are refused came at that time, it would be for one of them
    and the others would be refused again. So each is told the time at which those before it have been served too.

    Args:
        longest_s: nobody is told to wait this much longer than the ledger says. Some of those before do not come back.
        clock: seconds that only grow.
    """

    def __init__(self, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._next_s: dict[Line, float] = {}

    def wait_s(self, line: Line, room_s: float, work_s: float) -> float:
        """How long one more is to wait that has `work_s` of work, and for whom alone there is room after `room_s`."""
        now_s = self._clock()
        earliest_s = now_s + room_s
        told_s = min(max(self._next_s.get(line, 0.0), earliest_s), earliest_s + self._longest_s)
        self._next_s[line] = told_s + work_s
        return told_s - now_s

    def forget(self, is_idle: Callable[[str, Lane, str], bool]) -> None:
        """Forgets those who were told to come and do not: nothing of their line is queued, so there is room now."""
        self._next_s = {line: next_s for line, next_s in self._next_s.items() if not is_idle(*line)}
