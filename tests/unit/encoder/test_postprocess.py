"""Post-processing: Matryoshka cut, then unit length, as the library orders them."""

import numpy as np
import pytest

from tasks.encoder.encode import postprocess
from tasks.item import Options

RAW = [3, 4, 12, 84]


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        (RAW, Options(), [3 / 85, 4 / 85, 12 / 85, 84 / 85]),
        (RAW, Options(dimensions=2), [0.6, 0.8]),
        (RAW, Options(normalize=False), RAW),
        (RAW, Options(normalize=False, dimensions=3), RAW[:3]),
        ([0, 0, 0], Options(), [0, 0, 0]),
    ],
)
def test_a_cut_vector_is_scaled_after_the_cut(raw: list[float], options: Options, expected: list[float]) -> None:
    rows = np.array([raw, [9] * len(raw)], dtype=np.float32)
    vectors = postprocess(rows, options)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[0], expected, rtol=1e-6)
    assert not np.shares_memory(vectors, rows), "the raw vectors stay alive"
