"""API keys: made, listed, limited, rotated, revoked, purged and deleted by callers with the scope `admin`."""

from typing import Annotated

from fastapi import APIRouter, Depends

from api.auth import Admin, AnyKey
from api.dependencies import ApiKeys, json_body, read_json
from api.schemas.answer_parts import Page
from api.schemas.keys import DeletedKey, Key, KeyChange, NewKey, OwnKey, Rotation, ToldKey

router = APIRouter(prefix="/v1", tags=["keys"])


@router.get("/key")
async def read_own_key(key: AnyKey) -> OwnKey:
    """Returns name, scopes, limits and end of the caller's own key."""
    return OwnKey.model_validate(key)


@router.get("/keys")
async def list_keys(_key: Admin, keys: ApiKeys) -> Page[Key]:
    """Lists all keys by name, revoked ones and those of the environment too."""
    return await keys.list()


@router.post("/keys", status_code=201, openapi_extra=json_body(NewKey))
async def create_key(_key: Admin, keys: ApiKeys, body: Annotated[NewKey, Depends(read_json(NewKey))]) -> ToldKey:
    """Makes a key and tells its text, once."""
    return await keys.create(body)


@router.get("/keys/{name}")
async def read_key(_key: Admin, keys: ApiKeys, name: str) -> Key:
    """Returns one key."""
    return await keys.read(name)


@router.post("/keys/{name}", openapi_extra=json_body(KeyChange))
async def change_key(
    _key: Admin, keys: ApiKeys, name: str, body: Annotated[KeyChange, Depends(read_json(KeyChange, nulls=True))]
) -> Key:
    """Changes scopes, end and limits of a key, within a second and without a restart."""
    return await keys.change(name, body)


@router.post("/keys/{name}/rotate", openapi_extra=json_body(Rotation))
async def rotate_key(
    _key: Admin, keys: ApiKeys, name: str, body: Annotated[Rotation, Depends(read_json(Rotation))]
) -> ToldKey:
    """Gives a key another text and tells it, once. The text of before ends now, or after `grace_seconds`."""
    return await keys.rotate(name, body.grace_seconds)


@router.post("/keys/{name}/revoke")
async def revoke_key(_key: Admin, keys: ApiKeys, name: str) -> Key:
    """Ends a key for good: new requests get 401, and what was accepted goes on. What it owns stays until a purge."""
    return await keys.revoke(name)


@router.post("/keys/{name}/purge")
async def purge_key(_key: Admin, keys: ApiKeys, name: str) -> Key:
    """Has all that a revoked key owns removed; `left` says what is not yet. Tables of PostgreSQL stay."""
    return await keys.purge(name)


@router.delete("/keys/{name}")
async def delete_key(_key: Admin, keys: ApiKeys, name: str) -> DeletedKey:
    """Deletes a key that is revoked and purged. Its name is free again; its owner is gone for good."""
    await keys.delete(name)
    return DeletedKey(name=name)
