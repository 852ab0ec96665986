"""API keys of the ledger: made, listed, limited, rotated, revoked and deleted by callers with the scope `admin`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer, json_body
from api.answer.json_response import NO_STORE, ListOf, json_response, list_json
from api.families.route import ANY_KEY, JSON_BODY, MANAGING, Errors, Family
from api.parts import Services
from api.request.api_keys import KeyRing
from api.request.body import parse_object
from tasks import errors
from tasks.errors import InvalidValue, KeyExists, KeyInUse, KeyRevoked
from tasks.records.api_keys import (
    NO_LIMITS,
    USUAL_SCOPES,
    Key,
    KeyDigest,
    Limits,
    Scope,
    digest_of,
    new_key,
)
from tasks.wire.validation import require_known, validated
from worker_config.forms import is_key_name

MAX_EXPIRY_S = 100 * 365 * 86_400
MAX_GRACE_S = 365 * 86_400

_EXPIRES_IN = Field(
    None, strict=True, gt=0, le=MAX_EXPIRY_S, allow_inf_nan=False, description="Seconds; absent: for ever."
)
_LIMITS = Field(None, description="Its own limits.")
_EXAMPLE_LIMITS: JsonDict = {"requests_per_second": 50, "tokens_per_minute": 1_000_000}


class CreateKey(BaseModel):
    """Body of `POST /v1/keys`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "acme", "scopes": ["online", "read"], "limits": _EXAMPLE_LIMITS}]},
    )

    name: str = Field(description="Letters, digits, - and _; at most 48. It owns what is made with the key.")
    scopes: list[Scope] | None = Field(None, min_length=1, max_length=50, description="All but admin by default.")
    expires_in: float | None = _EXPIRES_IN
    limits: Limits | None = _LIMITS


class ChangeKey(BaseModel):
    """Body of `POST /v1/keys/{name}`. What is absent stays; null removes an end, a limit, or all limits."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limits": {"tokens_per_minute": 2_000_000}}]}
    )

    scopes: list[Scope] | None = Field(None, min_length=1, max_length=50, description="In place of those it has.")
    expires_in: float | None = _EXPIRES_IN
    limits: Limits | None = _LIMITS


class RotateKey(BaseModel):
    """Body of `POST /v1/keys/{name}/rotate`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_seconds": 3600}]})

    grace_seconds: float = Field(
        0,
        strict=True,
        ge=0,
        le=MAX_GRACE_S,
        allow_inf_nan=False,
        description="For so long the text of before is valid too.",
    )


class KeyAnswer(BaseModel):
    """An API key, without its text. Times are Unix seconds."""

    object: Literal["key"]
    name: str
    source: Literal["ledger", "environment"] = Field(description="environment: of EMBEDQ_API_KEYS.")
    scopes: list[Scope]
    limits: Limits
    created_at: int | None
    expires_at: int | None
    revoked_at: int | None
    purged_at: int | None = Field(description="When all that it owned was deleted.")


class NewKey(KeyAnswer):
    """A key with its text, which is told this once."""

    key: str = Field(examples=["embedq_6vJ1…"])


class KeyList(ListOf[KeyAnswer]):
    """All keys, by name."""


class OwnKey(BaseModel):
    """The key of the caller."""

    object: Literal["key"]
    name: str
    scopes: list[Scope]
    limits: Limits
    expires_at: int | None


class DeletedKey(BaseModel):
    """Confirms that a key is deleted."""

    name: str
    object: Literal["key"]
    deleted: Literal[True]


router = Family("keys")

_KEY: Errors = (errors.KeyUnknown,)


@router.describe("GET", "/v1/key", Answer(200, OwnKey), scopes=ANY_KEY)
async def read_own_key(request: Request) -> Response:
    """Returns name, scopes, limits and end of the caller's own key."""
    return json_response(_own(Services.from_request(request).caller(request)), NO_STORE)


@router.describe(
    "POST",
    "/v1/keys",
    Answer(201, NewKey),
    scopes=MANAGING,
    errors=(*JSON_BODY, errors.KeyExists, errors.QuotaExceeded, errors.NotReplicated),
    body=json_body(CreateKey),
)
async def create_key(request: Request) -> Response:
    """Makes a key and tells its text, once."""
    services = Services.from_request(request)
    body = validated(CreateKey, parse_object(await services.bodies.read(request)), {"limits": known_limits})
    new = new_key_of(body, services.keys.environment.keys(), USUAL_SCOPES)
    record = await services.ledger_keys.create(new.record)
    if record is None:
        raise name_taken()
    return json_response(_ledger_key(record) | {"key": new.text}, NO_STORE, status=201)


@dataclass(frozen=True, slots=True)
class NewKeyRecord:
    """A key that is about to be stored, and its text, which nobody is told again."""

    text: str = field(repr=False)
    body: CreateKey
    scopes: frozenset[Scope]

    def record(self, now_s: float) -> Key:
        """Of the key, made now: Unix seconds by the clock of Redis."""
        return Key(
            name=self.body.name,
            digests=(KeyDigest(sha256=digest_of(self.text)),),
            scopes=self.scopes,
            created=now_s,
            expires=None if self.body.expires_in is None else now_s + self.body.expires_in,
            limits=self.body.limits or NO_LIMITS,
        )


def new_key_of(body: CreateKey, taken: Collection[str], scopes: frozenset[Scope]) -> NewKeyRecord:
    """The key that a body asks for; `scopes`: where it names none.

    Raises:
        InvalidValue: its name is none.
        KeyExists: EMBEDQ_API_KEYS has a key with this name, which `taken` lists.
    """
    if not is_key_name(body.name):
        raise InvalidValue("name must have 1 to 48 letters, digits, - and _, and not be anonymous.", param="name")
    if body.name in taken:
        raise KeyExists("EMBEDQ_API_KEYS has a key with this name. Choose another one.", param="name")
    return NewKeyRecord(new_key(), body, scopes if body.scopes is None else frozenset(body.scopes))


def name_taken() -> KeyExists:
    """The ledger has a key with the name."""
    return KeyExists(
        "There is a key with this name. Rotate it for another text. To give the name to somebody else: revoke it, "
        "purge it and delete it.",
        param="name",
    )


@router.describe("GET", "/v1/keys", Answer(200, KeyList), scopes=MANAGING)
async def list_keys(request: Request) -> Response:
    """Lists all keys by name, revoked ones and those of the environment too."""
    services = Services.from_request(request)
    await services.ledger_keys.refresh_now()
    keys = [*_environment_keys(services.keys), *map(_ledger_key, services.keys.records.values())]
    return json_response(list_json(sorted(keys, key=lambda key: key["name"]), more=False, key="name"), NO_STORE)


@router.describe("GET", "/v1/keys/{name}", Answer(200, KeyAnswer), scopes=MANAGING, errors=_KEY)
async def read_key(request: Request, name: str) -> Response:
    """Returns one key."""
    services = Services.from_request(request)
    own = next((key for key in _environment_keys(services.keys) if key["name"] == name), None)
    if own is not None:
        return json_response(own, NO_STORE)
    return json_response(_ledger_key(await services.ledger_keys.read(name)), NO_STORE)


@router.describe(
    "POST",
    "/v1/keys/{name}",
    Answer(200, KeyAnswer),
    scopes=MANAGING,
    errors=(*JSON_BODY, *_KEY, errors.KeyRevoked, errors.NotReplicated),
    body=json_body(ChangeKey),
)
async def change_key(request: Request, name: str) -> Response:
    """Changes scopes, end and limits of a key, within a second and without a restart."""
    services = Services.from_request(request)
    fields = parse_object(await services.bodies.read(request))
    body = validated(ChangeKey, fields, {"limits": known_limits})

    def edit(record: Key, now_s: float) -> Key:
        if record.revoked is not None:
            raise KeyRevoked(f"The key {name} is revoked; nothing about it can change. Make another one.")
        changes: dict[str, Any] = {}
        if body.scopes is not None:
            changes["scopes"] = frozenset(body.scopes)
        if "expires_in" in fields:
            changes["expires"] = None if body.expires_in is None else now_s + body.expires_in
        if "limits" in fields:
            changes["limits"] = _changed_limits(record.limits, fields["limits"])
        return record.model_copy(update=changes)

    return json_response(_ledger_key(await services.ledger_keys.change(name, edit)), NO_STORE)


@router.describe(
    "POST",
    "/v1/keys/{name}/rotate",
    Answer(200, NewKey),
    scopes=MANAGING,
    errors=(*JSON_BODY, *_KEY, errors.KeyRevoked, errors.QuotaExceeded, errors.NotReplicated),
    body=json_body(RotateKey),
)
async def rotate_key(request: Request, name: str) -> Response:
    """Gives a key another text and tells it, once. The text of before ends now, or after `grace_seconds`."""
    services = Services.from_request(request)
    body = validated(RotateKey, parse_object(await services.bodies.read(request)))
    text = new_key()
    record = await services.ledger_keys.change(
        name, lambda record, now_s: record.rotate(digest_of(text), now_s, body.grace_seconds), whole=True
    )
    return json_response(_ledger_key(record) | {"key": text}, NO_STORE)


@router.describe(
    "POST", "/v1/keys/{name}/revoke", Answer(200, KeyAnswer), scopes=MANAGING, errors=(*_KEY, errors.NotReplicated)
)
async def revoke_key(request: Request, name: str) -> Response:
    """Ends a key for good: its requests get 401, long polls and downloads end. What it owns stays until a purge."""
    services = Services.from_request(request)
    record = await services.ledger_keys.change(name, lambda record, now_s: record.revoke(now_s))
    return json_response(_ledger_key(record), NO_STORE)


@router.describe(
    "DELETE",
    "/v1/keys/{name}",
    Answer(200, DeletedKey),
    scopes=MANAGING,
    errors=(*_KEY, errors.KeyInUse, errors.NotReplicated),
)
async def delete_key(request: Request, name: str) -> Response:
    """Deletes the record of a key that is revoked and purged, and so gives its name free."""

    def check(record: Key) -> None:
        if record.revoked is None or record.purged is None:
            missing = "purge" if record.revoked is not None else "revoke and purge"
            raise KeyInUse(f"Its name would come to own what is left: {missing} the key {name} first.")

    await Services.from_request(request).ledger_keys.delete(name, check)
    return json_response({"name": name, "object": "key", "deleted": True}, NO_STORE)


def known_limits(value: object) -> object:
    """Limits as given; raises `InvalidType` for one that there is not."""
    if isinstance(value, dict):
        require_known(value, Limits, "limits.")
    return value


def _changed_limits(limits: Limits, given: Mapping[str, Any] | None) -> Limits:
    if given is None:
        return NO_LIMITS
    return Limits.model_validate({**limits.model_dump(), **given})


def _ledger_key(record: Key) -> dict[str, Any]:
    times = {name: getattr(record, name) for name in ("created", "expires", "revoked", "purged")}
    return {
        "object": "key",
        "name": record.name,
        "source": "ledger",
        "scopes": _sorted(record.scopes),
        "limits": record.limits.model_dump(),
        **{f"{name}_at": None if at is None else int(at) for name, at in times.items()},
    }


def _environment_keys(keys: KeyRing) -> list[dict[str, Any]]:
    none = dict.fromkeys(("created_at", "expires_at", "revoked_at", "purged_at"))
    return [
        {
            "object": "key",
            "name": caller.name,
            "source": "environment",
            "scopes": _sorted(caller.scopes),
            "limits": caller.limits.model_dump(),
            **none,
        }
        for caller in keys.environment.values()
    ]


def _own(caller: Key) -> dict[str, Any]:
    return {
        "object": "key",
        "name": caller.name,
        "scopes": _sorted(caller.scopes),
        "limits": caller.limits.model_dump(),
        "expires_at": None if caller.expires is None else int(caller.expires),
    }


def _sorted(scopes: frozenset[Scope]) -> list[str]:
    return [scope.value for scope in Scope if scope in scopes]
