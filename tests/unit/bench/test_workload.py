"""Bodies of a load: no text twice, as a worker answers a repetition from memory."""

import json
from collections import Counter

from bench.scenarios.workload import PASSAGES_PER_REQUEST, Workload
from bench.servers.server import Server

SERVER = Server("peer", "http://127.0.0.1:1/v1", "m")


def test_no_passage_comes_twice_in_a_load() -> None:
    bodies = Workload(SERVER).passages(40)
    texts = Counter(text for body in bodies for text in json.loads(body)["input"])
    assert sum(texts.values()) == len(texts) == 40 * PASSAGES_PER_REQUEST


def test_no_query_comes_twice_in_two_loads() -> None:
    workload = Workload(SERVER)
    texts = [json.loads(body)["input"] for body in workload.queries(500) + workload.queries(500)]
    assert len(set(texts)) == 1000
