"""What a ledger says of the storage before anything was stored: for those who have a storage and no Redis."""

from tasks.ledger.scripts import Operation


async def nothing_stored(_: Operation[str]) -> str:
    """The id of the storage that Redis knows."""
    return ""
