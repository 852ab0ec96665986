"""Post-processing: Matryoshka cut, then unit length, as the library orders them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tasks.encoder.encode import postprocess
from tasks.encoder.interface import Float32Array
from tasks.item import Options

RAW = np.array([3, 4, 12, 84], dtype=np.float32)


def finished(raw: Float32Array, options: Options) -> Float32Array:
    [vector] = postprocess(raw[None, :], options)
    assert vector.dtype == np.float32
    return np.asarray(vector, dtype=np.float32)


def test_default_is_unit_length() -> None:
    np.testing.assert_allclose(finished(RAW, Options()), RAW / 85.0, rtol=1e-6)


def test_a_cut_vector_is_scaled_after_the_cut() -> None:
    np.testing.assert_allclose(finished(RAW, Options(dimensions=2)), [0.6, 0.8], rtol=1e-6)


def test_without_normalize_the_raw_output_stays() -> None:
    np.testing.assert_array_equal(finished(RAW, Options(normalize=False)), RAW)
    np.testing.assert_array_equal(finished(RAW, Options(normalize=False, dimensions=3)), RAW[:3])


def test_a_zero_vector_stays_zero() -> None:
    np.testing.assert_array_equal(finished(np.zeros(3, dtype=np.float32), Options()), np.zeros(3))


def test_the_result_does_not_keep_the_raw_vectors_alive() -> None:
    raw = np.ones((100, 4), dtype=np.float32)
    for options in (Options(), Options(normalize=False), Options(normalize=False, dimensions=2)):
        assert not np.shares_memory(postprocess(raw, options), raw)


def test_rows_do_not_mix() -> None:
    vectors = postprocess(np.array([[3, 4, 9], [0, 0, 9], [0, 2, 9]], dtype=np.float32), Options(dimensions=2))
    np.testing.assert_allclose(vectors, np.array([[0.6, 0.8], [0, 0], [0, 1]]), rtol=1e-6)


def test_nothing_in_nothing_out() -> None:
    assert postprocess(np.zeros((0, 4), dtype=np.float32), Options(dimensions=2)).shape == (0, 2)


@given(
    arrays.arrays(np.float32, st.integers(1, 64), elements=st.floats(-(2.0**100), 2.0**100, width=32)).filter(
        lambda raw: bool(np.abs(raw).max() > 1e-6)
    )
)
def test_every_other_vector_becomes_a_unit_vector_in_its_direction(raw: Float32Array) -> None:
    vector = finished(raw, Options())
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-5)
    assert np.dot(vector.astype(np.float64), raw.astype(np.float64)) > 0
