"""Vectors on a plane and in clusters: near the exact answer, the same each time, and at the edges."""

import numpy as np
import pytest

from tasks.documents.projection import Array, clusters, principal_components


def blobs(count: int, dimension: int = 32, *, apart: float = 8.0) -> Array:
    """Four groups of points, the first the largest."""
    random = np.random.default_rng(4)
    centres = random.standard_normal((4, dimension)) * apart
    which = np.arange(count) % 7 % 4
    return (centres[which] + random.standard_normal((count, dimension))).astype(np.float32)


def nothing() -> None:
    pass


def test_axes_are_those_of_an_exact_decomposition() -> None:
    vectors = blobs(600)
    centred = vectors - vectors.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    coordinates, shares = principal_components(vectors.copy(), 4, nothing)
    np.testing.assert_allclose(shares, (singular**2 / (singular**2).sum())[:4], rtol=1e-3)
    exact = centred @ axes[:4].T
    cosines = np.abs(np.einsum("ij,ij->j", coordinates, exact)) / (
        np.linalg.norm(coordinates, axis=0) * np.linalg.norm(exact, axis=0)
    )
    np.testing.assert_allclose(cosines[:3], 1, atol=1e-3)  # four groups span three axes; the fourth is noise


def test_the_same_vectors_give_the_same_map() -> None:
    first, second = (principal_components(blobs(300), 2, nothing)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("vectors", [[[1.0, 2, 3]], [[1.0, 2, 3]] * 5, [[0.0, 0, 0]] * 2, [[5.0]] * 3])
def test_points_without_variance_lie_in_the_middle(vectors: list[list[float]]) -> None:
    coordinates, shares = principal_components(np.array(vectors, np.float32), 2, nothing)
    assert coordinates.shape == (len(vectors), 2)
    np.testing.assert_allclose(coordinates, 0, atol=1e-6)
    np.testing.assert_allclose(shares, 0, atol=1e-6)
    assert clusters(coordinates, 10, nothing).tolist() == [0] * len(vectors)


def test_groups_far_apart_are_clusters_the_largest_first() -> None:
    points = blobs(700, 8, apart=30)
    labels = clusters(points, 4, nothing)
    which = np.arange(700) % 7 % 4
    assert len({(int(one), int(other)) for one, other in zip(which, labels, strict=True)}) == 4
    sizes = np.bincount(labels)
    assert sizes.tolist() == sorted(sizes, reverse=True)
    assert clusters(points[:3], 10, nothing).max() == 2, "no more clusters than points"


def test_a_stop_is_heard() -> None:
    def stop() -> None:
        raise KeyError

    for work in (principal_components, clusters):
        with pytest.raises(KeyError):
            work(blobs(50), 2, stop)
