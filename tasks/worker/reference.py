"""A revision stands for vectors: its first worker stores a few, and those after it are compared with them.

Two workers of one revision serve one queue, and a dataset is searched by the vectors of its revision. A revision is a
digest of files. Code of a model that is no file of it, and another version of a library, can change vectors under it.
"""

import numpy as np

from tasks.encoder.interface import Encoder, Float32Array, ModelLoadError
from tasks.encoder.self_test import REFERENCES, worst_cosine
from tasks.item import FLOAT32_BYTES
from tasks.ledger.client import Ledger
from tasks.ledger.read import reference

MIN_COSINE = 0.999
"""Less than the self-test wants. The vectors are those of the plain library, perhaps of another version on another
processor; that what is served agrees with them is what the self-test shows."""


def check_reference(ledger: Ledger, encoder: Encoder) -> None:
    """Compares the encoder with the first one of its revision. Not the fake one: its dimension is a setting.

    Raises:
        ModelLoadError: its vectors are others.
        RedisUnavailable: that cannot be known now.
    """
    info = encoder.info
    if info.compute == "fake":
        return
    own = encoder.reference[:REFERENCES]
    stored = ledger.run(reference(info.revision, own.astype("<f4").tobytes()))
    problem = difference(own, stored)
    if problem:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={info.model}: revision {info.revision} stands for other vectors in this Redis ({problem}). "
            "The model's files or libraries differ from those that gave this revision its vectors: restore them, or "
            "serve the model from another folder under another revision, or with an empty Redis (EMBEDQ_REDIS_URL)."
        )


def difference(own: Float32Array, stored: bytes) -> str:
    """How the vectors of an encoder, float32 [n, d], differ from those that are stored; "" if they are alike."""
    texts, dimension = own.shape
    if len(stored) != own.nbytes:
        return f"they have {len(stored) // (FLOAT32_BYTES * texts)} components, and these {dimension}"
    worst = worst_cosine(own, np.frombuffer(stored, dtype="<f4").reshape(own.shape))
    return "" if worst >= MIN_COSINE else f"cosine {worst:.6f} at worst, needed {MIN_COSINE}"
