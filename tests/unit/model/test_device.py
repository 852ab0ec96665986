"""The decision which device serves and how it may compute, as a table."""

import pytest

from tasks.model.device import Machine, Placement, Way, choose
from tasks.model.encoder import ModelLoadError

PLAIN_CPU = Machine(0, ("float32",))
FAST_CPU = Machine(0, ("bfloat16", "float32"))
TORCH_ONLY = Machine(0, ())
ONE_GPU = Machine(1, ("bfloat16", "float32"))
TWO_GPUS = Machine(2, ("float32",))

OV_BF16, OV_F32 = Way("openvino", "bfloat16"), Way("openvino", "float32")
TORCH_F16, TORCH_BF16, TORCH_F32 = Way("torch", "float16"), Way("torch", "bfloat16"), Way("torch", "float32")


@pytest.mark.parametrize(
    ("device", "compute", "precision", "machine", "expected"),
    [
        ("auto", "auto", "auto", FAST_CPU, Placement("cpu", (OV_BF16, OV_F32, TORCH_F32))),
        ("auto", "auto", "auto", PLAIN_CPU, Placement("cpu", (OV_F32, TORCH_F32))),
        ("auto", "auto", "auto", TORCH_ONLY, Placement("cpu", (TORCH_F32,))),
        ("auto", "auto", "float32", FAST_CPU, Placement("cpu", (OV_F32, TORCH_F32))),
        ("auto", "auto", "bfloat16", FAST_CPU, Placement("cpu", (OV_BF16,))),
        ("auto", "openvino", "auto", FAST_CPU, Placement("cpu", (OV_BF16, OV_F32))),
        ("auto", "openvino", "float32", FAST_CPU, Placement("cpu", (OV_F32,))),
        ("auto", "torch", "auto", FAST_CPU, Placement("cpu", (TORCH_F32,))),
        ("auto", "openvino", "auto", ONE_GPU, Placement("cpu", (OV_BF16, OV_F32))),
        ("cpu", "auto", "auto", TWO_GPUS, Placement("cpu", (OV_F32, TORCH_F32))),
        ("auto", "auto", "auto", ONE_GPU, Placement("cuda:0", (TORCH_F16, TORCH_F32))),
        ("cuda", "torch", "float32", ONE_GPU, Placement("cuda:0", (TORCH_F32,))),
        ("cuda:1", "auto", "bfloat16", TWO_GPUS, Placement("cuda:1", (TORCH_BF16,))),
    ],
)
def test_the_fastest_way_comes_first_and_what_is_named_comes_alone(
    device: str, compute: str, precision: str, machine: Machine, expected: Placement
) -> None:
    assert choose(device, compute, precision, machine) == expected


@pytest.mark.parametrize(
    ("device", "compute", "precision", "machine", "message"),
    [
        ("cuda", "auto", "auto", FAST_CPU, "EMBEDQ_DEVICE=cuda: torch sees 0 CUDA devices"),
        ("cuda:2", "auto", "auto", TWO_GPUS, "EMBEDQ_DEVICE=cuda:2: torch sees 2 CUDA devices"),
        ("cuda", "openvino", "auto", ONE_GPU, "Set EMBEDQ_DEVICE=cpu, or EMBEDQ_COMPUTE=torch"),
        ("cpu", "openvino", "auto", TORCH_ONLY, r"pip install 'embedq\[worker\]'"),
        ("cpu", "auto", "float16", ONE_GPU, "EMBEDQ_PRECISION=float16 is not available"),
        ("auto", "auto", "bfloat16", PLAIN_CPU, r"EMBEDQ_PRECISION=bfloat16 is not available.*\(it has float32\)"),
        ("auto", "torch", "bfloat16", FAST_CPU, "EMBEDQ_PRECISION=bfloat16 is not available with EMBEDQ_COMPUTE=torch"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    device: str, compute: str, precision: str, machine: Machine, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        choose(device, compute, precision, machine)
