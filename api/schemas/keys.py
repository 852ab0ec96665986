"""API keys as callers send and see them. Times are Unix seconds."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from tasks.records import api_keys
from tasks.records.api_keys import Limits, Scope
from tasks.wire.validation import require_known

_MAX_EXPIRY_S = 100 * 365 * 86_400
_MAX_GRACE_S = 365 * 86_400
_EXAMPLE_LIMITS: JsonDict = {"requests_per_second": 50, "tokens_per_minute": 1_000_000}


def _known(value: object) -> object:
    if isinstance(value, dict):
        require_known(value, Limits, "limits.")
    return value


Scopes = Annotated[list[Scope] | None, Field(min_length=1, max_length=50)]
ExpiresIn = Annotated[float | None, Field(strict=True, gt=0, le=_MAX_EXPIRY_S, allow_inf_nan=False)]
KnownLimits = Annotated[Limits | None, BeforeValidator(_known)]


class NewKey(BaseModel):
    """Body of `POST /v1/keys`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "acme", "scopes": ["online", "read"], "limits": _EXAMPLE_LIMITS}]},
    )

    name: str = Field(description="ASCII letters, digits, - and _; at most 48. A label.")
    scopes: Scopes = Field(None, description="All but operate and admin by default.")
    expires_in: ExpiresIn = Field(None, description="Seconds; absent: for ever.")
    limits: KnownLimits = Field(None, description="Its own limits.")


class KeyChange(BaseModel):
    """Body of `POST /v1/keys/{name}`. What is absent stays; null removes an end, a limit, or all limits."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"limits": {"tokens_per_minute": 2_000_000}}]}
    )

    scopes: Scopes = Field(None, description="In place of those it has.")
    expires_in: ExpiresIn = Field(None, description="Seconds; null: for ever.")
    limits: KnownLimits = Field(None, description="Those that change.")


class Rotation(BaseModel):
    """Body of `POST /v1/keys/{name}/rotate`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_seconds": 3600}]})

    grace_seconds: float = Field(
        0,
        strict=True,
        ge=0,
        le=_MAX_GRACE_S,
        allow_inf_nan=False,
        description="For so long the text of before is valid too.",
    )


class OwnKey(BaseModel):
    """The key of the caller."""

    object: Literal["key"] = "key"
    name: str
    owner: str = Field(description="Id of the owner of what is made with the key. Nobody inherits it.")
    scopes: list[Scope]
    limits: Limits
    expires_at: int | None

    @classmethod
    def of(cls, key: api_keys.Key) -> Self:
        """As its caller sees it."""
        return cls(
            name=key.name,
            owner=key.owner,
            scopes=[scope for scope in Scope if scope in key.scopes],
            limits=key.limits,
            expires_at=_seconds(key.expires),
        )


class Key(OwnKey):
    """An API key, without its text."""

    source: Literal["ledger", "environment"] = Field(description="environment: of EMBEDQ_API_KEYS.")
    created_at: int | None
    revoked_at: int | None
    purged_at: int | None = Field(description="When all that it owned was deleted.")

    @classmethod
    def of(cls, key: api_keys.Key) -> Self:
        """As an administrator sees it."""
        return cls(
            **dict(OwnKey.of(key)),
            source="ledger" if key.has_record else "environment",
            created_at=_seconds(key.created) if key.has_record else None,
            revoked_at=_seconds(key.revoked),
            purged_at=_seconds(key.purged),
        )


class ToldKey(Key):
    """A key with its text, which is told this once."""

    key: str = Field(examples=["embedq_6vJ1…"])

    @classmethod
    def told(cls, key: api_keys.Key, text: str) -> Self:
        """The key with its new text."""
        return cls(**dict(Key.of(key)), key=text)


class DeletedKey(BaseModel):
    """Confirms that a key is deleted."""

    name: str
    object: Literal["key"] = "key"
    deleted: Literal[True] = True


class Purged(BaseModel):
    """How many of each kind a call has removed. `bytes`: of objects in the storage."""

    tasks: int = 0
    files: int = 0
    batches: int = 0
    ingestions: int = 0
    datasets: int = 0
    bytes: int = 0


class PurgeResult(BaseModel):
    """What a call has done."""

    object: Literal["purge"] = "purge"
    name: str
    done: bool = Field(description="false: something is left; call again.")
    deleted: Purged


def _seconds(at: float | None) -> int | None:
    return None if at is None else int(at)
