"""Peers: their pins, their environments, and which of them is the one to be compared with."""

import re
import sys
from pathlib import Path

import pytest

from bench.servers import peers
from bench.servers.environments import NotAvailableError, environment, folder_name, run
from tests.source_tree import CHECKOUT

PINNED = re.compile(r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?==[0-9][A-Za-z0-9.]*")


def test_every_peer_has_its_packages_pinned() -> None:
    assert set(peers.pins()) == set(peers.PEERS)
    assert [line for lines in peers.pins().values() for line in lines if not PINNED.fullmatch(line)] == []


def test_what_runs_a_peer_is_pinned_beside_it() -> None:
    needed = {"infinity": {"uvicorn"}, "openvino": {"fastapi", "uvicorn"}, "fastembed": {"fastapi", "uvicorn"}}
    for name, lines in peers.pins().items():
        assert needed[name] <= {line.partition("==")[0] for line in lines}


def test_torch_is_that_of_this_project_and_brings_no_cuda() -> None:
    ours = {line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")}
    everything = [line for lines in peers.pins().values() for line in lines]
    assert {line for line in everything if line.startswith("torch==")} == ours
    assert [line for line in everything if re.match(r"nvidia|cuda|triton", line)] == []


def test_the_peers_of_a_format_agree_on_who_makes_it() -> None:
    makers = {(peer.model_format, peer.exporter) for peer in peers.PEERS.values()}
    assert len(makers) == len({model_format for model_format, _ in makers})


def test_other_packages_are_another_environment() -> None:
    assert folder_name("a", ["x==1"]) == folder_name("a", ["x==1"])
    assert len({folder_name("a", ["x==1"]), folder_name("a", ["x==2"]), folder_name("b", ["x==1"])}) == 3


def test_an_environment_that_was_made_is_used(tmp_path: Path) -> None:
    folder = tmp_path / folder_name("a", ["x==1"])
    folder.mkdir()
    (folder / "made").touch()
    assert environment("a", ["x==1"], tmp_path) == folder
    assert list(folder.iterdir()) == [folder / "made"]


def test_a_failure_says_what_was_told() -> None:
    program = "print('first'); raise SystemExit('ERROR: No matching distribution found for x==1')"
    with pytest.raises(NotAvailableError, match="No matching distribution found for x==1"):
        run([sys.executable, "-c", program])


def test_peers_need_a_model() -> None:
    with pytest.raises(NotAvailableError, match="there is no such folder"):
        peers.make("infinity", {"model": "/model/that/nobody/has"})
