"""API keys."""

from hashlib import sha256

import pytest
from starlette.datastructures import Headers

from api.request.api_keys import KeyRing
from tasks.errors import Unauthenticated
from tasks.ledger import ANONYMOUS
from tasks.records.api_keys import KeyReading
from worker_config.settings import load_settings

RING = KeyRing(
    load_settings(api_keys=[(name, sha256(f"secret-{name}".encode()).hexdigest()) for name in ("ann", "bob")])
)
RING.take(KeyReading(0, "", {}))


def owner_of(headers: Headers, ring: KeyRing = RING) -> str:
    return ring.grant(headers).caller.name


@pytest.mark.parametrize(
    ("headers", "owner"),
    [
        ({"authorization": "Bearer secret-ann"}, "ann"),
        ({"authorization": "BEARER  secret-bob "}, "bob"),
        ({"api-key": "secret-bob"}, "bob"),
        ({"x-api-key": "secret-ann"}, "ann"),
        ({"authorization": "Bearer secret-ann", "x-api-key": "wrong"}, "ann"),
        ({"authorization": "Bearer x", "x-api-key": "secret-ann"}, "ann"),  # a placeholder of a client that needs one
        ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "secret-bob"}, "bob"),
        ({"authorization": "Basic eDp5", "api-key": "secret-bob", "x-api-key": "x"}, "bob"),
        ({"authorization": "Bearer secret-ann", "api-key": "secret-bob"}, "ann"),
    ],
)
def test_the_owner_is_the_name_of_the_key(headers: dict[str, str], owner: str) -> None:
    assert owner_of(Headers(headers)) == owner


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer secret-eve"},
        {"authorization": "Token secret-ann"},
        {"authorization": f"Bearer {sha256(b'secret-ann').hexdigest()}"},
        {"x-api-key": "sécret"},
        {"authorization": "Bearer x", "api-key": "y", "x-api-key": "z"},
    ],
)
def test_anything_else_is_refused(headers: dict[str, str]) -> None:
    raw = Headers(raw=[(name.encode(), value.encode()) for name, value in headers.items()])
    with pytest.raises(Unauthenticated):
        owner_of(raw)


def test_without_keys_everybody_is_anonymous() -> None:
    ring = KeyRing(load_settings())
    ring.take(KeyReading(0, "", {}))
    assert owner_of(Headers({"authorization": "Bearer x"}), ring) == ANONYMOUS
