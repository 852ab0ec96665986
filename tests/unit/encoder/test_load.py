"""Where a model is, in which ways it may be computed, which of them passes, and what an operator is told."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Encoder, Float32Array, Layout, ModelLoadError, Tokens, WayUnusable
from tasks.encoder.load import Way, choose, explain, first_that_passes, thread_limit
from tasks.encoder.locate import locate
from tasks.encoder.prompts import prompts_by_purpose
from tasks.encoder.self_test import TEXTS, self_test, worst_cosine
from worker_config.settings import load_settings

PLAIN_CPU, FAST_CPU, TORCH_ONLY = ("float32",), ("bfloat16", "float32"), ()
OV_BF16, OV_F32 = Way("openvino", "bfloat16"), Way("openvino", "float32")
TORCH_F16, TORCH_BF16, TORCH_F32 = Way("torch", "float16"), Way("torch", "bfloat16"), Way("torch", "float32")


@pytest.mark.parametrize(
    ("asked", "cuda_devices", "openvino", "expected"),
    [
        ("auto auto auto", 0, FAST_CPU, ("cpu", (OV_BF16, OV_F32, TORCH_F32))),
        ("auto auto auto", 0, TORCH_ONLY, ("cpu", (TORCH_F32,))),
        ("auto auto bfloat16", 0, FAST_CPU, ("cpu", (OV_BF16,))),
        ("auto openvino auto", 0, FAST_CPU, ("cpu", (OV_BF16, OV_F32))),
        ("auto torch auto", 0, FAST_CPU, ("cpu", (TORCH_F32,))),
        ("cpu auto auto", 2, PLAIN_CPU, ("cpu", (OV_F32, TORCH_F32))),
        ("auto auto auto", 1, FAST_CPU, ("cuda:0", (TORCH_F16, TORCH_F32))),
        ("cuda:1 auto bfloat16", 2, PLAIN_CPU, ("cuda:1", (TORCH_BF16,))),
        ("cuda:2 auto auto", 2, PLAIN_CPU, "EMBEDQ_DEVICE=cuda:2: torch sees 2 CUDA devices"),
        ("cuda openvino auto", 1, FAST_CPU, "Set EMBEDQ_DEVICE=cpu, or EMBEDQ_COMPUTE=torch"),
        ("cpu openvino auto", 0, TORCH_ONLY, "OpenVINO is not installed"),
        ("cpu auto float16", 1, FAST_CPU, "EMBEDQ_PRECISION=float16 is not available"),
        ("auto auto bfloat16", 0, PLAIN_CPU, r"EMBEDQ_PRECISION=bfloat16 is not available.*\(it has float32\)"),
    ],
)
def test_the_fastest_way_comes_first_what_is_named_alone_and_what_is_not_there_is_refused(
    asked: str, cuda_devices: int, openvino: tuple[str, ...], expected: tuple[str, tuple[Way, ...]] | str
) -> None:
    settings = load_settings(**dict(zip(("device", "compute", "precision"), asked.split(), strict=True)))
    if isinstance(expected, str):
        with pytest.raises(ModelLoadError, match=expected):
            choose(settings, cuda_devices, openvino)
    else:
        assert choose(settings, cuda_devices, openvino) == expected


@pytest.mark.parametrize(
    ("quota", "asked", "threads"),
    [
        ("50000 100000", None, 1),
        ("150000 100000", None, 2),
        ("400000 100000", None, None),
        ("", None, None),
    ],
)
def test_threads_follow_the_processor_time_of_a_container(
    quota: str, asked: int | None, threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    file = tmp_path / "cpu.max"
    if quota:
        file.write_text(quota)
    assert thread_limit(asked, file) == threads


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 1 GiB"), "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: tried 9 bytes"),
            "not enough memory",
        ),
        (ValueError("Loading x requires you to set `trust_remote_code=True`"), "EMBEDQ_TRUST_REMOTE_CODE=true"),
        (ModuleNotFoundError("No module named 'einops'", name="einops"), "pip install einops"),
        (OSError("\x1b[31mx has no file\x1b[0m\nand more"), "OSError: x has no file and more"),
        (KeyError("sentence_embedding"), "cannot be loaded as an embedding model"),
    ],
)
def test_every_failure_names_the_setting_and_a_fix(error: Exception, expected: str) -> None:
    message = str(explain(error, "EMBEDQ_MODEL=some/model"))
    assert message.startswith("EMBEDQ_MODEL=some/model")
    assert "\n" not in message
    assert expected in message


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "~/models/x", "a/b/c"])
def test_a_path_without_a_folder_says_so(path: str) -> None:
    with pytest.raises(ModelLoadError, match=f"EMBEDQ_MODEL={path}: there is no such folder"):
        locate(path)


@pytest.mark.parametrize(("named", "commit"), [("static", "c" * 40), ("sentence-transformers/static@v1", "0" * 40)])
def test_a_model_of_the_hub_is_found_in_its_cache(
    named: str, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--sentence-transformers--static"
    (repository / "refs").mkdir(parents=True)
    for name, of in {"main": "c" * 40, "v1": "0" * 40}.items():
        (repository / "snapshots" / of).mkdir(parents=True)
        modules = [{"path": "", "type": "x.Normalize"}]  # it needs no file of its own
        (repository / "snapshots" / of / "modules.json").write_text(json.dumps(modules))
        (repository / "refs" / name).write_text(of)
    assert locate(named).name == commit
    with pytest.raises(ModelLoadError, match="neither in the local cache nor on the hub"):
        locate("somebody/not-in-any-cache")


EMPTY = {"query": "", "document": ""}
"""What the library adds to the prompts of every model."""


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({}, None, None),
        (EMPTY, "query", "document"),
        (EMPTY | {"query": "query: ", "passage": "passage: "}, "query", "passage"),
        (EMPTY | {"search_query": "Q: ", "search_document": "D: "}, "search_query", "search_document"),
        (EMPTY | {"web_search_query": "Q: ", "sts_query": "S: "}, "web_search_query", "document"),
        ({"document": "D: ", "passage": "P: ", "corpus": "C: "}, None, "document"),
        ({"search_query": "Q: ", "query": "other: "}, "query", None),
        ({"passage": "", "clustering": "C: "}, None, "passage"),
    ],
)
def test_the_prompts_for_queries_and_documents_by_the_names_that_authors_give_them(
    prompts: dict[str, str], query: str | None, document: str | None
) -> None:
    assert prompts_by_purpose(prompts) == (query, document)


class DriftingEncoder(FakeEncoder):
    """A fake whose forward pass is off by `drift` in one component of every vector."""

    drift = 0.1

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        rows = super().forward(texts, layout)
        rows[:, 0] += self.drift
        return rows


def test_the_self_test_refuses_other_vectors() -> None:
    encoder = DriftingEncoder(dimension=8)
    for drift in (0.0, 0.0005):
        encoder.drift = drift
        self_test(encoder)
    for drift in (0.1, float("nan")):
        encoder.drift = drift
        with pytest.raises(ModelLoadError, match="EMBEDQ_MODEL=fake with fake in float32 on cpu failed its self-test"):
            self_test(encoder)
    encoder.drift, encoder.reference = 0.0, np.ones((len(TEXTS), 4), dtype=np.float32)
    with pytest.raises(ModelLoadError, match="vectors have 8 components"):
        self_test(encoder)
    zeros, other = (np.array([row, [3, 4]], dtype=np.float32) for row in ([0, 0], [1, 0]))
    assert worst_cosine(zeros, zeros) == pytest.approx(1)
    assert np.isnan(worst_cosine(zeros, other)), "a row of zeros equals only a row of zeros"


def unusable() -> Encoder:
    raise WayUnusable("OpenVINO cannot compile this model.")


def missing() -> Encoder:
    raise ModelLoadError("EMBEDQ_MODEL=x was not found.")


def good() -> Encoder:
    return FakeEncoder("good")


DRIFTS, CANNOT = "failed its self-test", "OpenVINO cannot compile"


@pytest.mark.parametrize(
    ("candidates", "warnings", "refusal"),
    [
        ([good, unusable], [], ""),
        ([DriftingEncoder, unusable, good], [DRIFTS, CANNOT], ""),
        ([DriftingEncoder], [], DRIFTS),
        ([DriftingEncoder, unusable], [DRIFTS], CANNOT),
        ([missing, good], [], "was not found"),  # it is looked for once
    ],
)
def test_the_first_that_passes_serves_and_without_any_the_last_reason_is_told(
    candidates: list[Callable[[], Encoder]], warnings: list[str], refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    if refusal:
        with pytest.raises(ModelLoadError, match=refusal):
            first_that_passes(candidates)
    else:
        assert first_that_passes(candidates).info.model == "good"
    assert len(caplog.messages) == len(warnings)
    for message, expected in zip(caplog.messages, warnings, strict=True):
        assert expected in message
        assert message.endswith("Falling back.")
