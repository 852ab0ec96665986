"""From vectors to a plane and to clusters, with numpy alone. The same input gives the same result."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]

_ROUNDS = 12
"""Of the subspace iteration: with these the error of an axis is below what a screen shows."""
_OVERSAMPLING = 8
_LLOYD_ROUNDS = 30


def principal_components(vectors: Array, count: int, progress: Callable[[], None]) -> tuple[Array, Array]:
    """Coordinates on the axes of greatest variance, [rows, count], and the share of the variance on each, [count].

    Randomized subspace iteration (Halko, Martinsson and Tropp 2011): it needs little memory beside the vectors, which
    it moves to their mean.
    """
    rows, dimension = vectors.shape
    vectors -= vectors.mean(axis=0)
    total = float(np.einsum("ij,ij->", vectors, vectors))
    width = min(count + _OVERSAMPLING, dimension, rows)
    axes = np.random.default_rng(0).standard_normal((dimension, width)).astype(vectors.dtype)
    for _ in range(_ROUNDS):
        progress()
        axes, _ = np.linalg.qr(vectors.T @ (vectors @ axes))
    coordinates = vectors @ axes
    variances, rotation = np.linalg.eigh(coordinates.T @ coordinates)
    best = np.argsort(-variances)[:count]
    axes = axes @ rotation[:, best]
    # An axis has no direction of its own; its largest number decides, so that a map does not flip.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    shares = np.maximum(variances[best], 0) / total if total else np.zeros(len(best))
    missing = max(0, count - len(best))
    coordinates = (coordinates @ rotation[:, best]) * signs
    return np.pad(coordinates, ((0, 0), (0, missing))), np.pad(shares, (0, missing))


def clusters(points: Array, count: int, progress: Callable[[], None]) -> npt.NDArray[np.uint8]:
    """The cluster of each point, 0 for the largest: k-means with at most `count` of them."""
    random = np.random.default_rng(0)
    centres = _first_centres(points, count, random)
    labels = np.full(len(points), -1)
    for _ in range(_LLOYD_ROUNDS):
        progress()
        before, labels = labels, _distances(points, centres).argmin(axis=1)
        if np.array_equal(before, labels):
            break
        for number in range(len(centres)):
            mine = points[labels == number]
            if len(mine):
                centres[number] = mine.mean(axis=0)
    sizes = np.bincount(labels, minlength=len(centres))
    rank = np.empty(len(centres), np.uint8)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(centres))
    ranked: npt.NDArray[np.uint8] = rank[labels]
    return ranked


def _first_centres(points: Array, count: int, random: np.random.Generator) -> Array:
    """Points far from each other (k-means++); fewer than `count` where there are fewer different ones."""
    centres = points[[random.integers(len(points))]]
    while len(centres) < count:
        distances = np.maximum(_distances(points, centres).min(axis=1), 0).astype(np.float64)
        distances[distances < 1e-9 * max(1.0, float(distances.max()))] = 0  # rounding: the same point
        if not distances.any():
            break
        centres = np.vstack([centres, points[[random.choice(len(points), p=distances / distances.sum())]]])
    return centres


def _distances(points: Array, centres: Array) -> Array:
    """Squared, [points, centres]."""
    lengths = np.einsum("ij,ij->i", points, points)[:, None] + np.einsum("ij,ij->i", centres, centres)
    squared: Array = lengths - 2 * points @ centres.T
    return squared
