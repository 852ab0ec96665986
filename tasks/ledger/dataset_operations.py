"""Operations on datasets: values as in `tasks.ledger.operations`, each one script and harmless when run twice."""

from typing import Any

from tasks.ledger.datasets import Pointer
from tasks.ledger.operations import Operation


def read_dataset(owner: str, dataset: str) -> Operation[Pointer | None]:
    """Where the present catalog of a dataset is; None when there is no such dataset."""

    def read(reply: list[Any]) -> Pointer | None:
        version, catalog = reply
        return Pointer(int(version), catalog.decode()) if catalog else None

    return Operation("dataset_read", "", (owner, dataset), read)


def move_dataset(owner: str, dataset: str, expected: Pointer | None, to: Pointer) -> Operation[bool]:
    """Makes another catalog the present one; whether it is.

    It is not where the present one is no longer `expected` (None: there is no dataset yet).
    """
    arguments = (owner, dataset, expected.version if expected else 0, to.version, to.catalog)
    return Operation("dataset_move", "", arguments, bool)
