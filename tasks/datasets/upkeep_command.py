"""`embedq dataset backup | check | vacuum | rename`: by an operator, on a machine with the settings of the service."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tasks.datasets.contents import DatasetGone
from tasks.datasets.names import is_dataset_name
from tasks.datasets.places import Datasets, open_datasets
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.datasets.sqlite.upkeep import backup, check, vacuum
from tasks.errors import EmbedqError
from worker_config.data_folder import operator_settings
from worker_config.settings import SettingsError

_OWNER = re.compile(r"[A-Za-z0-9_-]+")
_OF_AN_INGESTION = "ing_"
"""A dataset named by the id of an ingestion goes with it."""


class _Refused(Exception):
    """It is not done. The text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0, or 1 where it could not be done or the file is damaged."""
    parser = argparse.ArgumentParser(prog="embedq dataset", description=__doc__)
    parser.add_argument("what", choices=("backup", "check", "vacuum", "rename"))
    parser.add_argument("name")
    parser.add_argument("target", nargs="?", default="", help="file of a backup, or new name")
    parser.add_argument("--owner", required=True)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args(argv)
    try:
        print(_done(args, open_datasets(operator_settings(args.data))))
    except (EmbedqError, SettingsError, _Refused, DatasetGone) as error:
        gone = f"{args.owner} has no dataset {args.name}" if isinstance(error, DatasetGone) else error
        print(f"embedq dataset: {error.detail if isinstance(error, EmbedqError) else gone}", file=sys.stderr)
        return 1
    return 0


def _done(args: argparse.Namespace, datasets: Datasets) -> str:
    if not (is_dataset_name(args.name) and _OWNER.fullmatch(args.owner)):
        raise _Refused("that is no name of a dataset, or no id of an owner")
    if args.what == "rename":
        return _renamed(args, datasets)
    if not isinstance(datasets, SqliteDatasets):
        raise _Refused("the datasets are in PostgreSQL: use pg_dump, amcheck and VACUUM")
    file = datasets.file(args.owner, args.name)
    before = _size(file)
    if args.what == "backup":
        try:
            backup(file, Path(args.target))
        except FileExistsError:
            raise _Refused(f"{args.target} exists; name a new file") from None
        except OSError as error:
            raise _Refused(f"{args.target} cannot be written: {error.strerror}") from None
        return f"{args.target} is a copy of {args.name}"
    if args.what == "vacuum":
        vacuum(file)
        return f"{args.name} has {_size(file):,} bytes, {before:,} before"
    if found := check(file):
        raise _Refused(f"{args.name} is damaged, put a backup in its place:\n" + "\n".join(found))
    return f"{args.name} is whole"


def _size(file: DatasetFile) -> int:
    """Of the file; asked before its lock is taken, which would make a folder for a dataset that is not there."""
    path = file.path()
    if path is None:
        raise DatasetGone
    return path.stat().st_size


def _renamed(args: argparse.Namespace, datasets: Datasets) -> str:
    if not is_dataset_name(args.target) or args.target.startswith(_OF_AN_INGESTION):
        raise _Refused(f"{args.target!r} cannot be the name of a dataset")
    if args.name not in datasets.names(args.owner):
        raise DatasetGone
    if not datasets.rename(args.owner, args.name, args.target):
        raise _Refused(f"{args.owner} has a dataset {args.target} already")
    return f"{args.name} is {args.target} now"


if __name__ == "__main__":
    sys.exit(main())
