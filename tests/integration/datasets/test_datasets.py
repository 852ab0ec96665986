"""All datasets of a server, in both places: they have names, are renamed and deleted, beside loads."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tasks.datasets.contents import DatasetGone
from tasks.datasets.loads import Verdict
from tasks.datasets.places import Datasets
from tasks.errors import Invalid, SinkUnavailable
from tests.integration.datasets.loads import document, finish, load, stamp
from tests.processes import PATIENCE_S, wait_until
from tests.raises_code import raises_code


def fill(datasets: Datasets, owner: str, name: str) -> None:
    with closing(datasets.store(owner, name)) as store:
        load(store, document("a"), document("b"))


def known(datasets: Datasets, owner: str, name: str) -> set[str]:
    with closing(datasets.store(owner, name)) as store:
        return set(store.known(["a", "b", "new"]))


def test_an_owner_has_his_datasets_and_their_bytes(datasets: Datasets) -> None:
    assert (datasets.names("me"), datasets.owners(), datasets.held_bytes("me")) == ([], [], 0)
    names = sorted(["docs", ".hidden", "..", "A", "a", "x" * 128])
    for name in names:
        fill(datasets, "me", name)
    fill(datasets, "me-too", "docs")
    assert datasets.names("me") == names
    assert datasets.owners() == ["me", "me-too"]
    heads = []
    for name in names:
        with closing(datasets.contents("me", name)) as contents:
            heads.append(contents.head())
    assert [head.name for head in heads] == names
    assert len({head.id for head in heads}) == 6
    assert datasets.held_bytes("me") == sum(head.size_bytes for head in heads) > 0

    assert datasets.delete("me", "docs")
    assert not datasets.delete("me", "docs")
    assert "docs" not in datasets.names("me")
    assert known(datasets, "me-too", "docs") == {"a", "b"}
    datasets.purge("me")
    assert (datasets.names("me"), datasets.held_bytes("me"), datasets.owners()) == ([], 0, ["me-too"])


def test_a_dataset_is_renamed_with_all_that_is_in_it(datasets: Datasets) -> None:
    fill(datasets, "me", "old")
    with closing(datasets.contents("me", "old")) as contents:
        assert datasets.rename("me", "old", "new")
        with pytest.raises(DatasetGone):
            contents.head()
    assert not datasets.rename("me", "old", "new"), "there is no old one"
    with closing(datasets.store("me", "old")) as store:
        assert load(store, document("new"), by=stamp(2)) == [Verdict.LOADED], "one of the old name is another"
        assert not datasets.rename("me", "old", "new"), "there is a new one"
        assert (known(datasets, "me", "old"), known(datasets, "me", "new")) == ({"new"}, {"a", "b"})
        assert datasets.delete("me", "new")
        assert datasets.rename("me", "old", "new")
        assert load(store, document("b"), by=stamp(3)) == [Verdict.LOADED], "into another one again"
    assert (known(datasets, "me", "old"), known(datasets, "me", "new")) == ({"b"}, {"new"})


def test_an_ingestion_whose_dataset_is_deleted_makes_no_other_one(datasets: Datasets) -> None:
    with closing(datasets.store("me", "docs")) as store:
        by = replace(stamp(), dataset_id=store.prepare(stamp(), lambda: None))
        assert store.prepare(stamp(2), lambda: None) == by.dataset_id
        assert load(store, document("a"), by=by) == [Verdict.LOADED]
        assert datasets.delete("me", "docs")
        attempts: list[Callable[[], object]] = [lambda: load(store, document("b"), by=by), lambda: finish(store, by)]
        for attempt in [lambda: store.prepare(by, lambda: None), *attempts]:
            with raises_code("dataset_deleted", match="start a new ingestion"):
                attempt()
        assert datasets.names("me") == []
        fill(datasets, "me", "docs")
        for attempt in attempts:  # nor do they go into another one of the name
            with raises_code("dataset_deleted", match="start a new ingestion"):
                attempt()


def test_what_happens_to_a_dataset_beside_its_loads_leaves_nothing_of_it(datasets: Datasets) -> None:
    """Loads of one ingestion end as told; nothing of the deleted dataset is left, and what is renamed is whole."""
    ended: dict[str, list[str]] = {"deleted": [], "renamed": []}

    def loads(name: str, ready: threading.Barrier) -> None:
        with closing(datasets.store("me", name)) as store:
            by = replace(stamp(), dataset_id=store.prepare(stamp(), lambda: None))
            ready.wait(PATIENCE_S)
            try:
                for n in range(1000):
                    load(store, document(f"{n}"), by=by)
                    ended[name].append(f"{n}")
            except Invalid as error:
                assert error.code == "dataset_deleted"  # noqa: PT017 - it ends at a moment of its own
            else:
                raise AssertionError("nobody has said that the dataset went away")

    def changed(change: Callable[[], bool]) -> bool:
        """Whether it could be done; its loads may leave it no moment, and then it says "try again"."""
        with contextlib.suppress(SinkUnavailable):
            return change()
        return False

    changes: dict[str, Callable[[], bool]] = {
        "deleted": lambda: datasets.delete("me", "deleted"),
        "renamed": lambda: datasets.rename("me", "renamed", "new"),
    }
    for name, change in changes.items():
        ready = threading.Barrier(2)
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(loads, name, ready)
            ready.wait(PATIENCE_S)
            wait_until(partial(changed, change), message="a moment between two loads")
            loading.result(PATIENCE_S)
    assert datasets.names("me") == ["new"]
    with closing(datasets.store("me", "new")) as store:
        assert sorted(store.known(ended["renamed"])) == sorted(ended["renamed"])
