"""A transformer compiled by OpenVINO for this CPU, in the place of the torch module it was made from.

Only the transformer: pooling and what follows see its token embeddings in float32 and stay the library's modules.
"""

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.encoder.interface import Int64Array, Layout, WayUnusable
from tasks.encoder.micro_batches import ROW_WIDTHS, plan, widths_for

_log = logging.getLogger(__name__)

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What a transformer over text may take."""
_PACKED_INPUTS = ("text_numbers", "position_ids")
"""What it gets instead of a mask where texts share rows."""
_PACKED_TYPES = {"bert", "roberta", "xlm-roberta", "camembert"}
"""Types of model in which no window, bias or state reaches from one text of a row into the next."""
_HINTS = {"float32": "f32", "bfloat16": "bf16"}
_EXAMPLE_TEXTS, _EXAMPLE_TOKENS = 2, 9
_CHECKED_LENGTHS = (7, 3, 12, 5, 9, 2, 11, 4)

Positions = Callable[[Int64Array], Int64Array]
"""From `input_ids` [texts, longest], padded on the right, to the position of each token."""


def cpu_precisions() -> tuple[str, ...]:
    """The precisions that OpenVINO computes in on this CPU, fastest first. Raises `ImportError` where it is missing."""
    capabilities = _openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ("bfloat16", "float32") if "BF16" in capabilities else ("float32",)


class CompiledTransformer:
    """Does what the transformer module does to padded features, without its weights.

    Args:
        transformer: the library's module, float32 on the CPU. Not needed any more afterwards.
        names: the inputs it gets, a selection of `INPUTS`.
        precision: `float32` or `bfloat16`, of the arithmetic inside; what goes in and comes out does not change.
        streams: threads that may call it at the same time.
        threads: at most so many, shared by the streams; None: one for each core.

    Raises:
        WayUnusable: OpenVINO cannot convert or compile it.
    """

    def __init__(
        self, transformer: Any, names: Sequence[str], *, precision: str, streams: int, threads: int | None
    ) -> None:
        self.output: str = transformer.module_output_name
        self._positions = network_positions(transformer, names)
        self.row_widths = () if self._positions is None else widths_for(precision)
        """As `Encoder.row_widths`."""
        try:
            model = _convert(transformer, names, packs=self._positions is not None)
            self._compiled = _compile(model, precision, streams, threads)
            # An input that changes nothing (token types of a model that has none) does not exist in the compiled one.
            self._inputs = tuple(map(_name, model.inputs))
        except Exception as error:
            # OpenVINO raises anything here: unknown operations, shapes that do not fit, no memory.
            raise WayUnusable(
                f"OpenVINO cannot compile this model. Set EMBEDQ_COMPUTE=torch. ({_reason(error)})"
            ) from error
        self._own = threading.local()

    def __call__(self, padded: Mapping[str, Int64Array], layout: Layout) -> npt.NDArray[np.float32]:
        """Token embeddings [texts, longest, d], valid until this thread's next call: it is OpenVINO's memory."""
        if self._positions is None:
            return self._infer(padded)
        return unpacked(self._infer(packed(padded, layout, self._positions)), padded, layout)

    def _infer(self, arrays: Mapping[str, Int64Array]) -> npt.NDArray[np.float32]:
        if not hasattr(self._own, "request"):  # one for each thread: it holds the memory of one pass
            self._own.request = self._compiled.create_infer_request()
        wanted = {name: arrays[name] for name in self._inputs}
        found: npt.NDArray[np.float32] = self._own.request.infer(wanted, share_inputs=True, share_outputs=True)[0]
        return found


# ---- several texts in one row, where a token sees the tokens of its own text alone


def packed(padded: Mapping[str, Int64Array], layout: Layout, positions: Positions) -> dict[str, Int64Array]:
    """The inputs of a pass whose texts are laid out in rows: int64 [rows, width], `text_numbers` 0 where none is."""
    is_token = padded["attention_mask"]
    named = {name: values for name, values in padded.items() if name != "attention_mask"}
    named["position_ids"] = positions(padded["input_ids"])
    if not layout.shared:
        return named | {"text_numbers": is_token}
    named["text_numbers"] = np.broadcast_to(np.arange(1, len(is_token) + 1)[:, None], is_token.shape)
    mask = is_token.astype(bool)
    to = (layout.starts[:, None] + np.arange(is_token.shape[1]))[mask]
    laid_out = {name: np.zeros(layout.padded_tokens, dtype=np.int64) for name in named}
    for name, values in named.items():
        laid_out[name][to] = values[mask]
    return {name: flat.reshape(layout.rows, layout.width) for name, flat in laid_out.items()}


def unpacked(
    embeddings: npt.NDArray[np.float32], padded: Mapping[str, Int64Array], layout: Layout
) -> npt.NDArray[np.float32]:
    """Of [rows, width, d], the tokens of each text: [texts, longest, d]. Behind its last one anything may stand."""
    if not layout.shared:
        return embeddings
    flat = embeddings.reshape(layout.padded_tokens, embeddings.shape[2])
    columns = np.arange(padded["attention_mask"].shape[1])
    # Less than `longest` may follow the last text.
    tokens: npt.NDArray[np.float32] = flat[np.minimum(layout.starts[:, None] + columns, len(flat) - 1)]
    return tokens


def network_positions(transformer: Any, names: Sequence[str]) -> Positions | None:
    """How this network numbers tokens, where texts may share rows; None: they may not.

    A network that skips the padding token wherever it stands has a method for it, which is asked: the rule is not
    written a second time. All others count from 0. Whether that gives the vectors of texts alone is then tried.

    Args:
        transformer: the library's module, float32 on the CPU.
        names: the inputs that it gets.
    """
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    network = transformer.model
    if (
        getattr(network.config, "model_type", "") not in _PACKED_TYPES
        or not {"input_ids", "attention_mask"} <= set(names) <= set(INPUTS)
        or transformer.tokenizer.padding_side != "right"
    ):
        return None
    embeddings = network.embeddings
    numbered = getattr(embeddings, "create_position_ids_from_input_ids", None)

    def positions(input_ids: Int64Array) -> Int64Array:
        if numbered is None:
            return np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape).copy()
        found: Int64Array = numbered(torch.from_numpy(input_ids), embeddings.padding_idx).numpy()
        return found

    try:
        return positions if _rows_may_be_shared(transformer, names, positions) else None
    except Exception as error:  # noqa: BLE001 - code of a model may raise anything; without shared rows it is served
        _log.info("texts share no rows: the model failed with %s", type(error).__name__)
        return None


def _rows_may_be_shared(transformer: Any, names: Sequence[str], positions: Positions) -> bool:
    """Whether random words, the padding token and other special ones among them, have the embeddings of texts alone."""
    import torch  # noqa: PLC0415 - as above

    lengths = np.array(_CHECKED_LENGTHS)
    [batch] = plan(lengths.tolist(), 10 * ROW_WIDTHS[0], ROW_WIDTHS[:1])
    lengths = lengths[batch.indexes]
    is_token = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    words = np.random.default_rng(0).integers(0, transformer.model.config.vocab_size, is_token.shape)
    special = transformer.tokenizer.all_special_ids
    words[:, 2 : 2 + len(special) : 2] = special[: words[:, 2 : 2 + len(special) : 2].shape[1]]
    pad = transformer.tokenizer.pad_token_id
    words[:, 1], words[0, 4] = pad, pad
    padded = {"input_ids": np.where(is_token, words, pad), "attention_mask": is_token}
    if "token_type_ids" in names:
        padded["token_type_ids"] = np.zeros_like(words)
    with torch.inference_mode():
        found = unpacked(_run(transformer, packed(padded, batch.layout, positions)), padded, batch.layout)
        expected = _run(transformer, padded)
    mask = is_token.astype(bool)
    return batch.layout.shared and np.allclose(found[mask], expected[mask], rtol=1e-3, atol=1e-4)


def _run(transformer: Any, arrays: Mapping[str, Int64Array]) -> Any:
    import torch  # noqa: PLC0415 - as above

    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
    return transformer(_features(**tensors))[transformer.module_output_name].numpy()


def _features(*, text_numbers: Any = None, **features: Any) -> dict[str, Any]:
    """What the library's transformer takes of these inputs."""
    if text_numbers is not None:
        features["attention_mask"] = text_numbers[:, None, :, None] == text_numbers[:, None, None, :]
    return {name: value for name, value in features.items() if value is not None}


# ---- OpenVINO


def _openvino() -> Any:
    # OpenVINO reports its use to Google Analytics when it is imported and when it converts, unless this package is
    # missing. Nothing here talks to anyone, so to OpenVINO it is missing.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None is how an import is refused
    import openvino  # noqa: PLC0415 - the worker's parent imports this module, and a process that forks must not

    return openvino


def _convert(transformer: Any, names: Sequence[str], *, packs: bool) -> Any:
    import torch  # noqa: PLC0415 - as above

    unknown = set(names) - set(INPUTS)
    if unknown:
        raise ValueError(f"unknown inputs {', '.join(sorted(unknown))}")
    example = dict.fromkeys(names, torch.ones((_EXAMPLE_TEXTS, _EXAMPLE_TOKENS), dtype=torch.int64))
    if "attention_mask" in example:
        # With padding: where nothing is masked, transformers leave the mask out, and the trace would too.
        example["attention_mask"] = torch.ones_like(example["attention_mask"]).tril(_EXAMPLE_TOKENS - 3)
    if transformer.tokenizer.padding_side == "left":
        # In a causal model the first padding sees nothing; torch's fused attention makes that 0 and OpenVINO's NaN.
        transformer.model.set_attn_implementation("eager")
    if packs:
        mask = example.pop("attention_mask")
        example |= {"text_numbers": mask, "position_ids": torch.ones_like(mask)}

    class Traceable(torch.nn.Module):
        """Tensors in, one tensor out: what can be traced."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(
            self,
            input_ids: Any,
            attention_mask: Any = None,
            token_type_ids: Any = None,
            text_numbers: Any = None,
            position_ids: Any = None,
        ) -> Any:
            features = _features(
                input_ids=input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                text_numbers=text_numbers,
                position_ids=position_ids,
            )
            return self.transformer(features)[transformer.module_output_name]

    with _quiet(), torch.inference_mode():
        return _openvino().convert_model(Traceable().eval(), example_input=example)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what a trace says of every Python value that it freezes: the self-test finds out whether that matters."""
    # openvino/tools/ovc/convert.py sets the root logger to ERROR and sets it back only when the conversion succeeds:
    # after a model that it cannot convert, the worker would log no warning for the rest of its life.
    root = logging.getLogger()
    level, handlers, filters = root.level, root.handlers[:], root.filters[:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers[:], root.filters[:] = handlers, filters


def _compile(model: Any, precision: str, streams: int, threads: int | None) -> Any:
    options: dict[str, Any] = {
        "NUM_STREAMS": streams,
        "INFERENCE_PRECISION_HINT": _HINTS[precision],
        # A pinned thread waits for its own core while another one is idle: with two busy cores a query took 23 ms
        # instead of 12.
        "ENABLE_CPU_PINNING": False,
        # Entries that each stream keeps of what it prepared for other shapes. The default of 5,000 took 350 MB after
        # 30,000 texts, and went on. 64 takes the same processor time within 5 %, 0 half as much again for queries.
        "CPU_RUNTIME_CACHE_CAPACITY": 64,
    }
    if threads is not None:
        options["INFERENCE_NUM_THREADS"] = threads
    return _openvino().Core().compile_model(model, "CPU", options)


def _name(port: Any) -> str:
    # An input that the trace looks at twice has numbers among its names, too.
    return next(name for name in (*INPUTS, *_PACKED_INPUTS) if name in port.get_names())


def _reason(error: BaseException) -> str:
    # OpenVINO wraps what failed in a sentence about itself; why it failed is the error that came first.
    first = error
    while (earlier := first.__cause__ or first.__context__) is not None:
        first = earlier
    return _first_line(error) if first is error else f"{_first_line(error)} Cause: {_first_line(first)}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
