"""Who calls, and with which right: the key of a request, as a dependency of the routes.

`Reader` and its like let in a key that has one of their scopes. FastAPI's own meaning of several scopes would be all.
"""

from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes

from api.parts import Services
from tasks.records.api_keys import Key, Scope

_DOCUMENTED = HTTPBearer(
    scheme_name="key",
    auto_error=False,
    description="Needed where keys are set; the headers `api-key` and `x-api-key` do as well.",
)
"""For the document. The keys themselves are read from all three headers, where several may come at once."""


async def known_key(request: Request) -> Key:
    """The key of this request; counts the request where the key has a limit of requests.

    Raises:
        Unauthenticated: no key came, or only wrong ones.
        RateLimited: the key may not make another request now.
        RedisUnavailable: the keys are not known yet.
        Overloaded: the caller's requests fill the connections.
    """
    return await cast("Services", request.app.state.services).known_key(request)


async def current_key(
    needed: SecurityScopes,
    request: Request,
    key: Annotated[Key, Depends(known_key)],
    _documented: Annotated[object, Security(_DOCUMENTED)] = None,
) -> Key:
    """The key of this request, which has one of the scopes that the route needs.

    Raises:
        ScopeMissing: it has none of them.
    """
    cast("Services", request.app.state.services).require(request, {Scope(name) for name in needed.scopes})
    return key


AnyKey = Annotated[Key, Security(current_key, scopes=[*Scope])]
Reader = Annotated[Key, Security(current_key, scopes=["read"])]
OnlineCaller = Annotated[Key, Security(current_key, scopes=["online"])]
# Whoever may make a thing may read it.
TaskMaker = Annotated[Key, Security(current_key, scopes=["online", "bulk"])]
TaskReader = Annotated[Key, Security(current_key, scopes=["online", "bulk", "read"])]
BatchMaker = Annotated[Key, Security(current_key, scopes=["bulk"])]
BatchReader = Annotated[Key, Security(current_key, scopes=["bulk", "read"])]
FileMaker = Annotated[Key, Security(current_key, scopes=["files"])]
FileReader = Annotated[Key, Security(current_key, scopes=["bulk", "files", "read"])]  # outputs of batches are files
IngestionMaker = Annotated[Key, Security(current_key, scopes=["ingest"])]
IngestionReader = Annotated[Key, Security(current_key, scopes=["ingest", "read"])]
Admin = Annotated[Key, Security(current_key, scopes=["admin"])]
