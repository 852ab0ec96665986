"""Which tables of other keys the limits of a key name."""

import pytest

from tasks.records.api_keys import NO_LIMITS, Limits


@pytest.mark.parametrize(
    ("sinks", "shares"),
    [
        (["store/chunks"], True),
        (["other/chunks", "store/chunks"], True),
        (["store/*"], True),
        (["store/chu*"], True),
        (["store/chunk"], False),
        (["store/chu*s"], False),
        (["store/*s"], False),
        (["store/chunks2"], False),
        (["store/public.chunks"], False),
        (["store"], False),
        (["stor/chunks"], False),
        (["other/*"], False),
        ([], False),
    ],
)
def test_a_table_is_shared_with_a_key_whose_limits_name_it(sinks: list[str], shares: bool) -> None:
    limits = Limits.model_validate({"sinks": sinks})
    assert limits.shares_table("store", "chunks") is shares


@pytest.mark.parametrize(("entry", "shares"), [("*", True), ("chu*", False), ("chunks.*", True), ("chunks.d*", True)])
def test_a_star_behind_a_name_stays_in_its_schema(entry: str, *, shares: bool) -> None:
    limits = Limits.model_validate({"sinks": [f"store/{entry}"]})
    assert limits.shares_table("store", "chunks.docs") is shares


def test_a_connection_alone_shares_no_table() -> None:
    assert not NO_LIMITS.shares_table("store", "chunks")
