"""Values of the ledger: what is stored of them and read back."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.item import Options, TextError
from tasks.ledger import ClaimedUnit, Finished, ModelEntry, OutcomeKind, State, WorkerEntry
from tests.ledger_builders import model_entry, worker_entry

options = st.builds(
    Options,
    prompt_name=st.none() | st.text(max_size=20),
    dimensions=st.none() | st.integers(1, 4096),
    normalize=st.booleans(),
    truncate=st.booleans(),
)
ENTRY = model_entry()
WORKER = worker_entry("w", 100.25, started_at=1.5, rss_bytes=1, forward_passes=2, items=3, tokens=4, padded_tokens=5)


@given(options=options)
def test_options_are_read_back_as_they_were(options: Options) -> None:
    assert Options.from_text(options.to_text()) == options
    assert Options.from_text(options.to_text().encode()) == options


def test_default_options_take_no_space() -> None:
    assert Options().to_text() == ""


def test_only_what_differs_from_the_default_is_stored() -> None:
    assert orjson.loads(Options(dimensions=64).to_text()) == {"dimensions": 64}


def test_open_states_are_not_terminal() -> None:
    assert {state for state in State if not state.terminal} == {State.QUEUED, State.IN_PROGRESS}


def unit(first: int, items: int, offset: int) -> ClaimedUnit:
    return ClaimedUnit("t", "0", first, items, 1, 1, offset, Options(), orjson.dumps(["a", "b", "c"]))


def test_a_unit_that_was_split_off_reads_its_own_text() -> None:
    assert unit(10, 3, 0).texts() == ["a", "b", "c"]
    assert unit(11, 1, 1).texts() == ["b"]
    assert unit(12, 1, 2).texts() == ["c"]


def test_an_outcome_without_errors_or_truncations_stores_nothing_beside_its_vectors() -> None:
    assert Finished(unit=unit(0, 1, 0), kind=OutcomeKind.VECTORS, outcome=b"", tokens=1).extra() == b""


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (OutcomeKind.VECTORS, b"\0" * 4),  # half a row for each of two items
        (OutcomeKind.VECTORS, b'{"part":"p"}'[:9]),
        (OutcomeKind.PART, b""),
        (OutcomeKind.PART, b"\0" * 8),
        (OutcomeKind.JOB, b""),  # nothing, and no error
        (OutcomeKind.JOB, b"[1]"),
    ],
)
def test_an_outcome_that_is_not_of_its_kind_is_never_committed(kind: OutcomeKind, outcome: bytes) -> None:
    with pytest.raises(ValueError, match=kind):
        Finished(unit(0, 2, 0), kind, outcome)


def test_errors_and_truncations_are_stored_beside_the_vectors() -> None:
    done = Finished(
        unit=unit(0, 1, 0),
        kind=OutcomeKind.VECTORS,
        outcome=b"",
        tokens=1,
        errors={4: TextError("c", "m")},
        truncated=[5],
    )
    assert orjson.loads(done.extra()) == {"errors": [[4, "c", "m"]], "truncated": [5]}


def test_entries_are_read_back_as_they_were() -> None:
    assert ModelEntry.from_json(ENTRY.to_json()) == ENTRY
    assert WorkerEntry.from_json(WORKER.to_json()) == WORKER


def test_entries_of_a_newer_version_are_read() -> None:
    for entry, kind in ((ENTRY, ModelEntry), (WORKER, WorkerEntry)):
        stored = orjson.dumps(orjson.loads(entry.to_json()) | {"novelty": [1]})
        assert kind.from_json(stored) == entry
