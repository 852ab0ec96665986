"""Memory that requests hold: large bodies on their way in and large answers on their way out, each within a budget."""

from collections import Counter
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tasks.errors import Overloaded
from tasks.ledger.executor import spread

SMALL_BYTES = 64 * 1024
"""Less than this is not counted and never refused: small requests go on while large ones fill a budget."""
_PIECE_BYTES = 256 * 1024
_RETRY_AFTER_S = 5
"""At most."""
OWNER = "embedq.owner"
"""Key in the scope of a request: the name of its owner, once that is known."""
_HELD = "embedq.held"


class Budget:
    """Limits the bytes that all requests of this process hold at a time. One owner may hold half of them.

    Args:
        what: is held, for the message.
        shared: whether there are several owners; one alone may hold all.
    """

    def __init__(self, limit_bytes: int, what: str, *, shared: Callable[[], bool] = lambda: False) -> None:
        self.limit_bytes = limit_bytes
        self._shared = shared
        self._what = what
        self._of_owners: Counter[str] = Counter()
        self.held_bytes = 0

    def take(self, scope: Scope, size_bytes: int) -> None:
        """Counts bytes for the request of `scope`, until `release`. A request that is alone is never refused.

        Raises:
            Overloaded: the budget, or the owner's share of it, is used up by other requests.
        """
        owner = scope.get(OWNER, "")
        mine: dict[Budget, int] = scope.setdefault(_HELD, {})
        before = mine.get(self, 0)
        share_bytes = self.limit_bytes // 2 if self._shared() else self.limit_bytes
        for held_bytes, limit_bytes in ((self.held_bytes, self.limit_bytes), (self._of_owners[owner], share_bytes)):
            if held_bytes > before and held_bytes + size_bytes > limit_bytes:
                raise Overloaded(
                    f"Too many bytes of {self._what} are under way here (EMBEDQ_MAX_HELD_BYTES); try again shortly.",
                    retry_after_s=spread(_RETRY_AFTER_S),
                )
        mine[self] = before + size_bytes
        self._count(owner, size_bytes)

    def take_large(self, scope: Scope, size_bytes: int) -> None:
        """Like `take`, if there are more than `SMALL_BYTES`."""
        if size_bytes > SMALL_BYTES:
            self.take(scope, size_bytes)

    def give_back(self, owner: str, size_bytes: int) -> None:
        """The opposite."""
        self._count(owner, -size_bytes)

    def _count(self, owner: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._of_owners[owner] += size_bytes
        if not self._of_owners[owner]:
            del self._of_owners[owner]


def release(scope: Scope) -> None:
    """The request of `scope` is over: it holds nothing any more."""
    for budget, size_bytes in scope.pop(_HELD, {}).items():
        budget.give_back(scope.get(OWNER, ""), size_bytes)


class LargeResponse(Response):
    """Is sent in pieces, as fast as the client takes them. The request, and what it holds of a budget, last as long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        if len(self.body) <= _PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        whole = memoryview(self.body)
        for start in range(0, len(whole), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            await send({"type": "http.response.body", "body": whole[start:end], "more_body": end < len(whole)})
