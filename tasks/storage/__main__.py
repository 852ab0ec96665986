"""`embedq storage`: what an operator does with the storage by hand, on a machine with the settings of the service."""

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.errors import EmbedqError, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.read import check_schema
from tasks.ledger.redis_keys import ANONYMOUS, record_key
from tasks.ledger.scripts import Operation
from tasks.pieces import pieces
from tasks.records.api_keys import is_owner
from tasks.records.batches import BatchRecord
from tasks.records.files import FileRecord, file_id_of
from tasks.records.ingestions import IngestionRecord
from tasks.records.storage_identity import accept, open_proved
from tasks.records.store import MOST
from tasks.storage.storage import Storage, Stored
from tasks.storage.sweep import SPARE_S, read_sweeper, run_id_of, sweeper_of
from worker_config.data_folder import operator_settings
from worker_config.settings import SettingsError

_KINDS = (BatchRecord, IngestionRecord, FileRecord)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0, or 1 where it could not be done."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    parser = argparse.ArgumentParser(prog="embedq storage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    unknown = commands.add_parser("unknown", help="list what lies in the storage and no record names")
    unknown.add_argument("--delete", action="store_true", help="delete it, if it is older than a day")
    accepting = commands.add_parser("accept", help="make the storage at EMBEDQ_STORAGE_URL the one that Redis knows")
    for command in (unknown, accepting):
        command.add_argument("--data", type=Path, metavar="DIR", help="data folder of the local stack that is meant")
    args = parser.parse_args(argv)
    try:
        settings = operator_settings(args.data)
        ledger = Ledger.connect(settings.redis_url, settings.redis_ack, settings.sentinels)
        ledger.run(check_schema())
        if args.command == "accept":
            print(f"this Redis knows the storage {accept(Storage.open(settings.storage_url), ledger.run)} now")
        else:
            _list(open_proved(settings.storage_url, ledger.run), ledger, delete=args.delete)
    except (EmbedqError, SettingsError) as error:
        print(f"embedq storage: {error.detail if isinstance(error, EmbedqError) else error}", file=sys.stderr)
        return 1
    return 0


def _list(storage: Storage, ledger: Ledger, *, delete: bool) -> None:
    """Prints one object a line: bytes, days since it was written, name.

    Raises:
        StorageUnavailable: another Redis sweeps the storage, so that this one does not know what is needed.
    """
    if delete:
        require_sweeper(storage, ledger)
    young_ms = (time.time() - SPARE_S) * 1000
    number = deleted = size_bytes = 0
    for stored in list(unknown_objects(storage, ledger)):
        number, size_bytes = number + 1, size_bytes + stored.size_bytes
        print(f"{stored.size_bytes:>14,} {(time.time() - stored.modified_ms / 1000) / 86_400:>6.1f} d  {stored.name}")
        if delete and stored.modified_ms <= young_ms:
            storage.delete(stored.name)
            deleted += 1
    print(f"{number:,} objects with {size_bytes:,} bytes that no record names" + f", {deleted:,} deleted" * delete)
    if delete and deleted < number:
        print("Objects younger than a day stay: somebody may be writing them.")


def require_sweeper(storage: Storage, ledger: Ledger) -> None:
    """Raises `StorageUnavailable` unless this is the Redis that sweeps the storage."""
    held, own = read_sweeper(storage), run_id_of(ledger)
    if not own or sweeper_of(held) != own:
        whose = f"Another Redis sweeps this storage ({sweeper_of(held)})" if held else "No Redis has swept it yet"
        raise StorageUnavailable(
            f"{whose}, and EMBEDQ_REDIS_URL names {own or 'one that does not tell its run_id'}. What another one needs "
            "is not known here, so nothing is deleted. A documents worker takes the storage over within twelve minutes "
            "if its Redis is the only one."
        )


def unknown_objects(storage: Storage, ledger: Ledger) -> Iterator[Stored]:
    """What no record names, in the order of names. Objects are listed before records are read.

    Raises:
        StorageUnavailable, RedisUnavailable: it cannot be known.
    """
    objects = sorted(filter(_is_owned, storage.stored("")), key=lambda stored: stored.name)
    for piece in pieces(objects, MOST):
        # Of a job's folder, and of a file, which may lie in such a folder.
        ids = [(stored.name.split("/")[1], file_id_of(stored.name)) for stored in piece]
        known = ledger.run(_known([one for pair in ids for one in pair if one]))
        yield from (stored for stored, pair in zip(piece, ids, strict=True) if known.isdisjoint(pair))


def _known(ids: Sequence[str]) -> Operation[set[str]]:
    """Those of which there is a record, and be it one of another version that nobody here can read."""
    commands = tuple(("EXISTS", *(record_key(kind.KIND, one) for kind in _KINDS)) for one in ids)
    return Operation(lambda replies: {one for one, there in zip(ids, replies, strict=True) if there}, commands=commands)


def _is_owned(stored: Stored) -> bool:
    owner, slash, _ = stored.name.partition("/")
    return bool(slash) and (is_owner(owner) or owner.startswith(ANONYMOUS))


if __name__ == "__main__":
    sys.exit(main())
