"""When vectors under one revision are others."""

import numpy as np
import pytest

from tasks.worker.reference import MIN_COSINE, difference

OWN = np.array([[1, 0, 0], [0, 2, 0]], dtype=np.float32)


@pytest.mark.parametrize("stored", [OWN, 3 * OWN, OWN + np.float32(0.01)])
def test_the_same_direction_is_the_same_vector(stored: np.ndarray) -> None:
    assert difference(OWN, stored.astype("<f4").tobytes()) == ""


@pytest.mark.parametrize("cosine", [MIN_COSINE - 0.0001, 0.5, -1.0])
def test_one_text_with_another_vector_suffices(cosine: float) -> None:
    stored = OWN.copy()
    stored[1] = [np.sqrt(1 - cosine**2), cosine, 0]
    assert difference(OWN, stored.astype("<f4").tobytes()) == f"cosine {cosine:.6f} at worst, needed {MIN_COSINE}"


@pytest.mark.parametrize(("components", "told"), [(2, 2), (4, 4), (0, 0)])
def test_another_length_is_another_vector(components: int, told: int) -> None:
    stored = np.ones((2, components), dtype="<f4").tobytes()
    assert difference(OWN, stored) == f"they have {told} components, and these 3"


def test_what_is_no_number_is_no_vector() -> None:
    stored = np.full_like(OWN, np.nan).tobytes()
    assert difference(OWN, stored).startswith("cosine nan")
