"""Whatever the library raises while loading, the operator reads which setting to change."""

import pytest

from tasks.model.torch_model import explain


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 1 GiB"), "not enough memory"),
        (ValueError("Loading x requires you to set `trust_remote_code=True`"), "EMBEDQ_TRUST_REMOTE_CODE=true"),
        (ModuleNotFoundError("No module named 'torch'"), "pip install 'embedq[worker]'"),
        (OSError("x is not a local folder\nand more"), "was not found"),
        (KeyError("sentence_embedding"), "cannot be loaded as an embedding model"),
    ],
)
def test_every_failure_names_the_setting_and_a_fix(error: Exception, expected: str) -> None:
    message = str(explain(error, "some/model"))
    assert message.startswith("EMBEDQ_MODEL=some/model")
    assert "\n" not in message
    assert expected in message
