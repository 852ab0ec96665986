"""What a request of the families that are not ordinary routes yet holds, until `api.server.edge` ends it."""

from starlette.types import Scope

from api.request_limits import HeldBytes, Holding

OWNER = "embedq.owner"
"""Key in the scope of a request: the name of its owner, once that is known."""
_HELD = "embedq.held"


def holding_of(scope: Scope, limit: HeldBytes) -> Holding:
    """What the request of `scope` holds of a limit."""
    held: dict[HeldBytes, Holding] = scope.setdefault(_HELD, {})
    if limit not in held:
        held[limit] = Holding(limit, scope.get(OWNER, ""))
    return held[limit]


def release(scope: Scope) -> None:
    """The request of `scope` is over: it holds nothing any more."""
    for holding in scope.pop(_HELD, {}).values():
        holding.release()
