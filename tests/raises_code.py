"""What tests expect of an error that has its code as data."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.errors import EmbedqError


@contextmanager
def raises_code(*codes: str, match: str | None = None) -> Iterator["pytest.ExceptionInfo[EmbedqError]"]:
    """`pytest.raises` for errors with one of these codes."""
    with pytest.raises(EmbedqError, match=match) as caught:
        yield caught
    assert caught.value.code in codes
