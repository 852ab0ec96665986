"""What stays in memory, and what goes."""

from contextlib import ExitStack

import pytest

from tasks.search.kept import Kept


def test_what_was_used_longest_ago_goes_first() -> None:
    kept = Kept(100)
    reads: list[str] = []

    def read(key: str) -> str:
        def make() -> str:
            reads.append(key)
            return key.upper()

        return kept.value(key, 40, make)

    assert [read(key) for key in "abab"] == ["A", "B", "A", "B"]
    assert reads == ["a", "b"]
    read("a")
    read("c")
    assert (reads, kept.size_bytes) == (["a", "b", "c"], 80)
    read("a")
    read("b")
    assert reads == ["a", "b", "c", "b"]


def test_what_does_not_fit_is_read_and_drives_nothing_out() -> None:
    kept = Kept(100)
    kept.value("a", 60, lambda: "a")
    assert kept.value("large", 101, lambda: "large") == "large"
    assert kept.size_bytes == 60
    with kept.together({"b": 60, "c": 60}) as held:
        assert held is None


def test_what_is_in_use_stays() -> None:
    kept = Kept(100)
    with ExitStack() as blocks:
        first = blocks.enter_context(kept.together({"a": 50, "b": 50}))
        assert first is not None
        assert first.value("a", lambda: "A") == "A"
        assert kept.value("c", 10, lambda: "C") == "C"
        assert kept.size_bytes == 100
        again = blocks.enter_context(kept.together({"a": 50}))
        assert again is not None
        assert again.value("a", lambda: "other") == "A"
    assert kept.size_bytes == 50, "b was never read, so it needs no room"
    assert kept.value("c", 60, lambda: "C") == "C"
    assert kept.size_bytes == 60


def test_a_failure_is_not_kept() -> None:
    kept = Kept(100)
    with pytest.raises(ZeroDivisionError):
        kept.value("a", 50, lambda: 1 // 0)
    assert kept.size_bytes == 0
    assert kept.value("a", 50, lambda: 1) == 1


def test_what_is_forgotten_is_gone_also_while_it_is_used() -> None:
    kept = Kept(100)
    kept.keep(("rows", "a/1"), 1, 10)
    kept.keep(("rows", "b/1"), 2, 10)
    with kept.together({("vectors", "a/1"): 50, ("vectors", "a/2"): 20}) as held:
        assert held is not None
        kept.forget(lambda key: key[1].startswith("a/"))
        assert held.value(("vectors", "a/1"), lambda: 3) == 3
    assert (kept.find(("rows", "a/1")), kept.find(("vectors", "a/1")), kept.find(("rows", "b/1"))) == (None, None, 2)
    assert kept.size_bytes == 10
