"""`embedq storage`: what an operator does with the storage by hand, on a machine with the settings of the service."""

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tasks.documents.sinks.parquet.dataset_cleanup import unnamed_parts
from tasks.documents.sweep import SPARE_S, read_sweeper, run_id_of, sweeper_of
from tasks.errors import EmbedqError, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.read import check_schema
from tasks.records import files, ingestions
from tasks.records.batches import KINDS, open_batches, read_batches
from tasks.records.files import file_id_of, read_files
from tasks.records.ingestion_operations import read_ingestions
from tasks.records.storage_identity import accept, open_proved
from tasks.records.store import MOST
from tasks.storage.storage import Storage, Stored
from worker_config.data_folder import operator_settings
from worker_config.settings import SettingsError

_BATCHES = "batches"
_ALL = 2**31
_AT_ONCE = 100


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
        ledger = Ledger.connect(settings.redis_url, settings.redis_ack)
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
    """What no record names, in no particular order. Objects are listed before records are read.

    Raises:
        StorageUnavailable, RedisUnavailable: it cannot be known.
    """
    yield from _unknown_files(storage, ledger)
    for folder in (_BATCHES, ingestions.FOLDER):
        yield from _unknown_of_jobs(storage, ledger, folder)
    yield from unnamed_parts(storage)


def _unknown_files(storage: Storage, ledger: Ledger) -> Iterator[Stored]:
    objects = storage.stored(files.FOLDER)
    while piece := list(islice(objects, MOST)):
        awaited = _outputs_of_open_batches(ledger)  # before the records: who has ended since has made them
        records = ledger.run(read_files([file_id_of(stored.name) for stored in piece]))
        for stored, record in zip(piece, records, strict=True):
            named = record is not None and record.stored == stored.name
            if not named and file_id_of(stored.name) not in awaited:
                yield stored


def _outputs_of_open_batches(ledger: Ledger) -> set[str]:
    ids = ledger.run(open_batches(_ALL))
    pieces = (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))
    return {b.file_id(kind) for piece in pieces for b in ledger.run(read_batches(piece)) for kind in KINDS}


def _unknown_of_jobs(storage: Storage, ledger: Ledger, folder: str) -> Iterator[Stored]:
    """What lies in folders of batches or ingestions that the ledger does not hold."""
    objects = sorted(storage.stored(folder), key=lambda stored: stored.name)
    ids = sorted({stored.name.split("/")[1] for stored in objects})
    known: set[str] = set()
    for first in range(0, len(ids), _AT_ONCE):
        piece = ids[first : first + _AT_ONCE]
        if folder == _BATCHES:
            known |= {batch.id for batch in ledger.run(read_batches(piece))}
        else:
            known |= {ingestion.id for ingestion in ledger.run(read_ingestions(piece))}
    yield from (stored for stored in objects if stored.name.split("/")[1] not in known)


if __name__ == "__main__":
    sys.exit(main())
