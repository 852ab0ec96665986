"""What the owner of vectors is told where a search by cosine is not what the author of the model meant."""

import pytest

from tasks.ingestion.skip_unchanged import warning
from tests.ledger_builders import a_model

DATASET = {"sink": {"type": "dataset"}}
TABLE = {"sink": {"type": "postgresql"}}


@pytest.mark.parametrize(("similarity", "operator"), [("dot", "<#>"), ("euclidean", "<->"), ("manhattan", "<+>")])
def test_the_way_out_is_named(similarity: str, operator: str) -> None:
    entry = a_model(similarity=similarity)
    for spec in (DATASET, DATASET | {"normalize": False}, TABLE):
        assert warning(spec, entry).endswith(f'with "normalize": false, and search it by {operator}.')
    assert warning(TABLE | {"normalize": False}, entry) == ""


def test_cosine_is_nothing_to_warn_of() -> None:
    assert warning(DATASET, a_model()) == ""
    assert warning(DATASET, a_model(similarity="of a later version")) == ""
