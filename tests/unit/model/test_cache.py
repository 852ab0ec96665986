"""The cache of vectors by itself: what it keeps, what it gives up, and how much memory that takes."""

import threading
import tracemalloc

import pytest

from tasks.model import vector_cache
from tasks.model.encoder import TextItem
from tasks.model.vector_cache import OVERHEAD_BYTES, CachedText, CacheState, TextKey, VectorCache

VECTOR_BYTES = 16
ENTRY_BYTES = VECTOR_BYTES + OVERHEAD_BYTES
LARGE = 2**20


def text(mark: int = 0, length: int = 3) -> CachedText:
    return CachedText(bytes([mark]) * VECTOR_BYTES, length, length)


def room_for(entries: int) -> VectorCache:
    return VectorCache(entries * ENTRY_BYTES)


def kept(cache: VectorCache, *keys: TextKey) -> list[TextKey]:
    return list(cache.find(keys))


def test_what_was_added_is_found_as_it_was() -> None:
    cache = room_for(2)
    cache.add({TextKey(None, "a"): text(1), TextKey("query", "a"): text(2, length=9)})
    assert cache.find([TextKey("query", "a"), TextKey(None, "b"), TextKey(None, "a")]) == {
        TextKey("query", "a"): text(2, length=9),
        TextKey(None, "a"): text(1),
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TextKey(None, "a"), TextKey(None, "b")),
        (TextKey(None, "a"), TextKey(None, "a ")),
        (TextKey(None, "a"), TextKey(None, "A")),
        (TextKey(None, "é"), TextKey(None, "e\u0301")),
        (TextKey(None, ""), TextKey("", "")),
        (TextKey(None, "a"), TextKey("", "a")),
        (TextKey("query", "a"), TextKey("document", "a")),
        (TextKey("quer", "ya"), TextKey("query", "a")),
        (TextKey(None, "+querya"), TextKey("query", "a")),
        (TextKey(None, "a\0"), TextKey(None, "a")),
        (TextKey("", "\0\0\0\1-a"), TextKey(None, "a")),
        (TextKey(None, "a", "ann"), TextKey(None, "a", "bob")),
        (TextKey(None, "a", "ann"), TextKey(None, "a")),
        (TextKey(None, "a", "x-"), TextKey("", "a", "x")),
    ],
)
def test_keys_that_differ_at_all_are_different(one: TextKey, other: TextKey) -> None:
    cache = room_for(4)
    cache.add({one: text()})
    assert kept(cache, other) == []
    assert kept(cache, one) == [one]


def test_half_a_surrogate_pair_is_a_text_like_others() -> None:
    cache = room_for(4)
    cache.add({TextKey(None, "\ud800"): text()})
    assert kept(cache, TextKey(None, "\ud800"), TextKey(None, "?"), TextKey(None, "\ud801")) == [
        TextKey(None, "\ud800")
    ]


def test_what_was_asked_for_the_longest_ago_is_given_up_first() -> None:
    a, b, c, d = [TextKey(None, name) for name in "abcd"]
    cache = room_for(3)
    cache.add({a: text(), b: text(), c: text()})
    cache.find([a])
    cache.add({d: text()})
    assert kept(cache, a, b, c, d) == [a, c, d]
    assert cache.state.size_bytes == 3 * ENTRY_BYTES


def test_a_text_that_is_added_again_counts_once() -> None:
    cache = room_for(2)
    for _ in range(5):
        cache.add({TextKey(None, "a"): text()})
    assert cache.state.size_bytes == ENTRY_BYTES


def test_an_entry_above_the_limit_is_not_kept() -> None:
    cache = VectorCache(ENTRY_BYTES - 1)
    cache.add({TextKey(None, "a"): text()})
    assert cache.state == CacheState(hits=0, misses=0, size_bytes=0)
    assert kept(cache, TextKey(None, "a")) == []


def test_an_owner_is_forgotten_and_nobody_else() -> None:
    cache = room_for(4)
    anns, bobs = ([TextKey(None, name, owner) for name in "ab"] for owner in ("ann", "bob"))
    cache.add({key: CachedText(bytes(VECTOR_BYTES), 3, 3, key.owner) for key in (*anns, *bobs)})
    assert cache.forget("ann") == 2
    assert kept(cache, *anns, *bobs) == bobs
    assert (cache.state.size_bytes, cache.forget("ann")) == (2 * ENTRY_BYTES, 0)


def test_a_shared_cache_has_one_text_of_all_owners_and_forgets_all() -> None:
    cache = VectorCache(LARGE, shared=True)
    ann, bob = (cache.key(TextItem("a", owner=owner)) for owner in ("ann", "bob"))
    cache.add({ann: text()})
    assert kept(cache, bob) == [ann]
    assert (cache.forget("bob"), cache.state.size_bytes) == (1, 0)


def test_hits_and_misses_are_counted() -> None:
    cache = room_for(2)
    cache.find([TextKey(None, "a"), TextKey(None, "b")])
    cache.add({TextKey(None, "a"): text()})
    cache.find([TextKey(None, "a"), TextKey(None, "b")])
    assert cache.state == CacheState(hits=1, misses=3, size_bytes=ENTRY_BYTES)


def test_a_cache_of_no_size_keeps_and_counts_nothing() -> None:
    cache = VectorCache(0)
    cache.add({TextKey(None, "a"): text()})
    assert kept(cache, TextKey(None, "a")) == []
    assert not cache.keeps
    assert cache.state == CacheState(0, 0, 0)


@pytest.mark.parametrize("dimension", [1, 384])
def test_it_takes_no_more_memory_than_it_says(dimension: int) -> None:
    limit = 2_000_000
    texts = 3 * limit // (4 * dimension + OVERHEAD_BYTES)
    highest = 0
    tracemalloc.start()
    try:
        cache = VectorCache(limit)
        for number in range(texts):
            # Lengths above those that Python keeps as constants, texts of some size.
            entry = CachedText(bytes(4 * dimension), 1000 + number, 2000 + number, f"owner {number % 10}")
            cache.add({TextKey("query", f"{number} " * 50, entry.owner): entry})
            if number % (texts // 8) == 0:
                highest = max(highest, _traced_here())
    finally:
        tracemalloc.stop()
    assert limit - 2000 < cache.state.size_bytes <= limit
    assert 0.6 * limit < highest <= limit + 20_000


def _traced_here() -> int:
    # Not all traced memory: in a process of the whole suite, threads of other tests take some meanwhile.
    files = [tracemalloc.Filter(True, vector_cache.__file__), tracemalloc.Filter(True, __file__)]
    traces = tracemalloc.take_snapshot().filter_traces(files)
    return sum(statistic.size for statistic in traces.statistics("filename"))


def test_several_threads_leave_it_in_order() -> None:
    cache = room_for(20)
    everyone = threading.Barrier(4)

    def use(first: int) -> None:
        everyone.wait()
        for number in range(first, first + 400):
            key = TextKey(None, str(number % 50))
            for found in cache.find([key]).values():
                assert found.length == number % 50
            cache.add({key: text(length=number % 50)})

    threads = [threading.Thread(target=use, args=(7 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = cache.state
    assert state.hits + state.misses == 1600
    assert state.size_bytes == 20 * ENTRY_BYTES
    assert len(kept(cache, *(TextKey(None, str(n)) for n in range(50)))) == 20
