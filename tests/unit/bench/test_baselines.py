"""The usual designs do their best: the threads that serve are those in which the model was loaded and warmed."""

import asyncio
import os
import threading
from collections import Counter

import pytest

from bench.baselines import DESIGNS, Encode, Vectors, encoder

CORES = len(os.sched_getaffinity(0))


class Recorder:
    """An encoder that knows in which threads it was."""

    def __init__(self) -> None:
        self.loaded_in = 0
        self.helpers = 0
        self.threads: list[int] = []

    def load(self, helpers: int) -> Encode:
        self.loaded_in = threading.get_ident()
        self.helpers = helpers
        return self.encode

    def encode(self, texts: list[str]) -> Vectors:
        self.threads.append(threading.get_ident())
        return [[float(len(text))] for text in texts]


@pytest.mark.parametrize("design", DESIGNS)
async def test_no_thread_serves_that_was_not_warmed(design: str) -> None:
    recorder = Recorder()
    encode = encoder(design, recorder.load)
    warmed = Counter(recorder.threads)
    assert recorder.loaded_in in warmed
    assert set(warmed.values()) == {1}
    answers = await asyncio.gather(*(encode(["a" * length]) for length in range(50)))
    assert answers == [[[float(length)]] for length in range(50)]
    assert set(recorder.threads) == set(warmed)


@pytest.mark.parametrize("design", DESIGNS)
async def test_no_more_threads_compute_than_there_are_cores(design: str) -> None:
    recorder = Recorder()
    encoder(design, recorder.load)
    assert recorder.helpers * len(set(recorder.threads)) == CORES


@pytest.mark.parametrize("design", ["to_thread", "locked"])
async def test_the_thread_of_the_event_loop_never_computes(design: str) -> None:
    recorder = Recorder()
    await encoder(design, recorder.load)(["text"])
    assert threading.get_ident() not in {recorder.loaded_in, *recorder.threads}


async def test_under_a_lock_one_thread_computes() -> None:
    recorder = Recorder()
    encode = encoder("locked", recorder.load)
    await asyncio.gather(*(encode(["text"]) for _ in range(50)))
    assert len(set(recorder.threads)) == 1
