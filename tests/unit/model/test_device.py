"""The decision which device and precision serve, as a table."""

import pytest

from tasks.model.device import Placement, choose
from tasks.model.errors import ModelLoadError


@pytest.mark.parametrize(
    ("device", "precision", "cuda_devices", "expected"),
    [
        ("auto", "auto", 0, Placement("cpu", "float32")),
        ("auto", "float32", 0, Placement("cpu", "float32")),
        ("cpu", "auto", 2, Placement("cpu", "float32")),
        ("auto", "auto", 1, Placement("cuda:0", "float16")),
        ("cuda", "float32", 1, Placement("cuda:0", "float32")),
        ("cuda:1", "bfloat16", 2, Placement("cuda:1", "bfloat16")),
    ],
)
def test_auto_takes_what_is_there(device: str, precision: str, cuda_devices: int, expected: Placement) -> None:
    assert choose(device, precision, cuda_devices) == expected


@pytest.mark.parametrize(
    ("device", "precision", "cuda_devices", "message"),
    [
        ("cuda", "auto", 0, "EMBEDQ_DEVICE=cuda: torch sees 0 CUDA devices"),
        ("cuda:2", "auto", 2, "EMBEDQ_DEVICE=cuda:2: torch sees 2 CUDA devices"),
        ("cpu", "float16", 1, "EMBEDQ_PRECISION=float16 is not available"),
        ("auto", "bfloat16", 0, "EMBEDQ_PRECISION=bfloat16 is not available"),
    ],
)
def test_what_is_not_there_is_refused_by_name(device: str, precision: str, cuda_devices: int, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        choose(device, precision, cuda_devices)
