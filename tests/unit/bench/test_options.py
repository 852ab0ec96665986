"""What the words after `python -m bench` choose."""

import pytest

from bench.__main__ import _options, _parser
from bench.suite import PEERS, SERVERS


def chosen(*words: str) -> tuple[list[str], list[str]]:
    options = _options(_parser().parse_args(words))
    return list(options.servers), list(options.scenarios)


def test_peers_are_measured_only_if_somebody_asks() -> None:
    assert chosen()[0] == list(SERVERS)
    assert chosen("--peers")[0] == [*SERVERS, *PEERS]
    assert chosen("--servers", "embedq", "infinity")[0] == ["embedq", "infinity"]
    assert chosen("--servers", "embedq", "infinity", "--peers")[0] == ["embedq", "infinity", "openvino", "fastembed"]


def test_where_there_is_a_peer_its_fidelity_is_measured() -> None:
    assert chosen("--only", "passages")[1] == ["passages"]
    assert chosen("--only", "passages", "--peers")[1] == ["passages", "fidelity"]
    assert chosen("--only", "fidelity", "--servers", "infinity")[1] == ["fidelity"]


def test_a_name_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen("--servers", "nobody")
    assert "invalid choice" in capsys.readouterr().err
