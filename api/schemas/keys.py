"""API keys as callers send and see them. Times are Unix seconds."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from tasks.records.api_keys import Limits, Scope
from tasks.wire.validation import require_known
from worker_config.setting_types import is_key_name

_MAX_EXPIRY_S = 100 * 365 * 86_400
_MAX_GRACE_S = 365 * 86_400
_EXAMPLE_LIMITS: JsonDict = {"requests_per_second": 50, "tokens_per_minute": 1_000_000}


def _known(value: object) -> object:
    if isinstance(value, dict):
        require_known(value, Limits, "limits.")
    return value


def _name(name: str) -> str:
    if not is_key_name(name):
        raise PydanticCustomError("name", "have 1 to 48 ASCII letters, digits, - and _, and not be anonymous")
    return name


def _in_order(scopes: Collection[Scope]) -> list[Scope]:
    return [scope for scope in Scope if scope in scopes]


def _second(at_s: float | None) -> int | None:
    return int(at_s) if at_s else None


Name = Annotated[str, AfterValidator(_name)]
Scopes = Annotated[list[Scope] | None, Field(min_length=1, max_length=50)]
ExpiresIn = Annotated[float | None, Field(strict=True, gt=0, le=_MAX_EXPIRY_S, allow_inf_nan=False)]
KnownLimits = Annotated[Limits | None, BeforeValidator(_known)]
At = Annotated[int | None, BeforeValidator(_second)]


class NewKey(BaseModel):
    """Body of `POST /v1/keys`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "acme", "scopes": ["online", "read"], "limits": _EXAMPLE_LIMITS}]},
    )

    name: Name = Field(description="ASCII letters, digits, - and _; at most 48. A label.")
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


class Left(BaseModel):
    """What an owner still has. Datasets count in the storage alone, and are removed first."""

    model_config = ConfigDict(from_attributes=True)

    jobs: int = Field(description="That have not ended.")
    files: int
    stored_bytes: int
    memory_bytes: int = Field(description="Of Redis: records, and results until their time.")


class OwnKey(BaseModel):
    """The key of the caller."""

    model_config = ConfigDict(from_attributes=True, validate_by_name=True)

    object: Literal["key"] = "key"
    name: str
    owner: str = Field(description="Id of the owner of what is made with the key. Nobody inherits it.")
    scopes: Annotated[list[Scope], BeforeValidator(_in_order)]
    limits: Limits
    expires_at: At = Field(validation_alias="expires")


class Key(OwnKey):
    """An API key, without its text."""

    source: Literal["ledger", "environment"] = Field(description="environment: of EMBEDQ_API_KEYS.")
    created_at: At = Field(validation_alias="created")
    revoked_at: At = Field(validation_alias="revoked")
    purged_at: At = Field(validation_alias="purged", description="When the removal of all that it owned began.")
    swept_at: At = Field(validation_alias="swept", description="When nothing was left of it.")
    left: Left | None = Field(None, description="Of a purged key that is asked for alone: what is not removed yet.")


class ToldKey(Key):
    """A key with its text, which is told this once."""

    key: str = Field(examples=["embedq_6vJ1…"])


class DeletedKey(BaseModel):
    """Confirms that a key is deleted."""

    name: str
    object: Literal["key"] = "key"
    deleted: Literal[True] = True
