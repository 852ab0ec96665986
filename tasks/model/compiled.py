"""A transformer compiled by OpenVINO for this CPU, in the place of the torch module it was made from.

Only the transformer: pooling and what follows see its token embeddings in float32 and stay the library's modules.
"""

import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from tasks.model.encoder import WayUnusable
from tasks.model.packing import (
    LONE_WIDTHS,
    PACKED_INPUTS,
    Packed,
    first_position,
    lone_width,
    packed_features,
    widths_for,
)
from tasks.pieces import pieces

_log = logging.getLogger(__name__)

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What a transformer over text may take, in the order of `_traceable`'s arguments."""

_HINTS = {"float32": "f32", "bfloat16": "bf16"}
_EXAMPLE_TEXTS, _EXAMPLE_TOKENS = 2, 9

AWAKE_S = 0.03
"""So long after a pass the other cores are awake and their caches warm. Later, a query gains nothing from more threads
(whole stack, pauses of 0.1 s: 14.4 ms with all threads, 14.3 with one; of 1 s: 15.2 and 14.7)."""

_TRIED_LENGTHS = (16, 21, 14, 19, 12, 23)
"""In tokens, as most queries have them."""
_TRIED_ROUNDS = 3
_TRIED_S = 1.0
"""A start may take so much longer, and one pass. Where that is too little for two rounds, passes are so long that a
change of shape does not matter."""


def cpu_precisions() -> tuple[str, ...]:
    """The precisions that OpenVINO computes in on this CPU, fastest first."""
    capabilities = _openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ("bfloat16", "float32") if "BF16" in capabilities else ("float32",)


class CompiledTransformer:
    """Does what the transformer module does to `features`, without its weights.

    Args:
        transformer: the library's module, float32 on the CPU. Not needed any more afterwards.
        names: the inputs it gets, a selection of `INPUTS`.
        precision: `float32` or `bfloat16`, of the arithmetic inside; what goes in and comes out does not change.
        streams: threads that may call it at the same time.
        threads: at most so many, shared by the streams; None: one for each core.
        lone_threads: `all`: a second copy, with one stream, gives all threads to a pass that is alone. It costs the
            weights once more. `stream`: there is none, and such a pass gets the threads of its stream.
        clock: in seconds.

    Attributes:
        whole_passes: that had all threads by the second copy.

    Raises:
        WayUnusable: OpenVINO cannot convert or compile it.
    """

    def __init__(
        self,
        transformer: Any,
        names: Sequence[str],
        *,
        precision: str,
        streams: int = 1,
        threads: int | None = None,
        lone_threads: Literal["all", "stream"] = "all",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_position = first_position(transformer, names)
        self.row_widths = () if self._first_position is None else widths_for(precision)
        """As `Encoder.row_widths`."""
        try:
            model = _convert(transformer, names, packs=self._first_position is not None)
            self._shared = self._whole = _Copy(_compile(model, precision, streams, threads))
            if lone_threads == "all" and streams > 1 and threads != 1:
                self._whole = _Copy(_compile(model, precision, 1, threads))
            # An input that changes nothing (token types of a model that has none) does not exist in the compiled one.
            self._inputs = tuple(map(_name, model.inputs))
            self.lone_widths = LONE_WIDTHS if self.row_widths and one_shape_is_faster(self._try, clock) else ()
            """As `Encoder.lone_widths`."""
        except Exception as error:
            # OpenVINO raises anything here: unknown operations, shapes that do not fit, no memory.
            raise WayUnusable(
                f"OpenVINO cannot compile this model. Set EMBEDQ_COMPUTE=torch. ({_reason(error)})"
            ) from error
        self._output: str = transformer.module_output_name
        self._clock = clock
        self._last_pass = float("-inf")
        self.whole_passes = 0

    @property
    def copies(self) -> int:
        """How many times it has the weights."""
        return 1 if self._whole is self._shared else 2

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """`features` with the transformer's output, valid until this thread's next call: it is OpenVINO's memory."""
        return self._infer(self._shared, features)

    def alone(self, features: dict[str, Any]) -> dict[str, Any]:
        """The same for a pass that is the only one: with all threads, unless it is the first one after a pause.

        A second one at that time would wait for it.
        """
        if self._clock() - self._last_pass > AWAKE_S or self.copies == 1:
            return self._infer(self._shared, features)
        self.whole_passes += 1
        return self._infer(self._whole, features)

    def _try(self, tokens: int) -> None:
        """A pass as a lone text of so many tokens has it."""
        self._run(self._whole, dict.fromkeys(self._inputs, np.ones((1, tokens), dtype=np.int64)))

    def _run(self, copy: "_Copy", arrays: Mapping[str, Any]) -> Any:
        wanted = {name: arrays[name] for name in self._inputs}
        return copy.request().infer(wanted, share_inputs=True, share_outputs=True)[0]

    def _infer(self, copy: "_Copy", features: dict[str, Any]) -> dict[str, Any]:
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

        arrays = {name: features[name].numpy() for name in INPUTS if name in features}
        first = self._first_position
        found = self._run(copy, arrays) if first is None else self._packed(copy, arrays, first)
        self._last_pass = self._clock()
        return {**features, self._output: torch.from_numpy(found)}

    def _packed(self, copy: "_Copy", padded: dict[str, Any], first: int) -> Any:
        is_token = padded.pop("attention_mask")
        packed = Packed(padded, is_token, row_widths=self.row_widths, lone_widths=self.lone_widths, first=first)
        found = self._run(copy, packed.inputs)
        if packed.rearranged and not math.isfinite(float(found.sum())):
            # A mask does not keep NaN of one text from another one in its row: 0 times NaN is NaN.
            return self._apart(copy, padded, is_token, packed.padded_tokens, first)
        return packed.unpack(found)

    def _apart(self, copy: "_Copy", padded: dict[str, Any], is_token: Any, max_padded_tokens: int, first: int) -> Any:
        """The same with a row for each text, in as many passes as compute no more than so many tokens each."""
        texts, longest = is_token.shape
        found = []
        for some in pieces(range(texts), max(1, max_padded_tokens // longest)):
            rows = slice(some[0], some[-1] + 1)
            inputs = {name: values[rows] for name, values in padded.items()}
            packed = Packed(inputs, is_token[rows], row_widths=(), lone_widths=(), first=first)
            found.append(self._run(copy, packed.inputs).copy())  # the next pass of this request overwrites it
        return np.concatenate(found)


class _Copy:
    """A compiled model with the requests of those who use it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._own = threading.local()

    def request(self) -> Any:
        """Of this thread. It holds the memory of one pass at a time."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        return self._own.request


def one_shape_is_faster(run: Callable[[int], object], clock: Callable[[], float]) -> bool:
    """Whether lone texts take less time in rows of `LONE_WIDTHS` than in rows of their own lengths.

    OpenVINO prepares anew for each change of shape, so padding may pay: that depends on the model and on the CPU.

    Args:
        run: a pass over a row of so many tokens.
        clock: in seconds.
    """
    ends = clock() + _TRIED_S
    widths = [lone_width(length, LONE_WIDTHS) for length in _TRIED_LENGTHS]
    rounds = []
    for _ in range(1 + _TRIED_ROUNDS):
        own = list(_seconds(run, _TRIED_LENGTHS, ends, clock))
        padded = list(_seconds(run, widths, ends, clock))
        if len(padded) == len(widths):
            rounds.append((own, padded))
    compared = rounds[1:]  # the first one prepares for all these shapes, which happens once
    if not compared:
        return False
    own_s, padded_s = _at_best(own for own, _ in compared), _at_best(padded for _, padded in compared)
    _log.info("%d lone texts: %.4f s in rows of their own lengths, %.4f s padded", len(widths), own_s, padded_s)
    return padded_s < own_s


def _at_best(rounds: Iterable[Sequence[float]]) -> float:
    """Seconds of a round if each pass takes the least that it took: whatever else runs only adds to it."""
    least_s: float = sum(map(min, zip(*rounds, strict=True)))
    return least_s


def _seconds(
    run: Callable[[int], object], lengths: Sequence[int], ends: float, clock: Callable[[], float]
) -> Iterator[float]:
    """Of each pass that begins before `ends`."""
    for length in lengths:
        begins = clock()
        if begins > ends:
            return
        run(length)
        yield clock() - begins


def _name(port: Any) -> str:
    # An input that the trace looks at twice has numbers among its names, too.
    return next(name for name in (*INPUTS, *PACKED_INPUTS) if name in port.get_names())


def _reason(error: BaseException) -> str:
    # OpenVINO wraps what failed in a sentence about itself; why it failed is the error that came first.
    first = error
    while (earlier := first.__cause__ or first.__context__) is not None:
        first = earlier
    return _first_line(error) if first is error else f"{_first_line(error)} Cause: {_first_line(first)}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"


def _openvino() -> Any:
    # OpenVINO reports its use to Google Analytics when it is imported and when it converts, unless this package is
    # missing. Nothing here talks to anyone, so to OpenVINO it is missing.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None is how an import is refused
    import openvino  # noqa: PLC0415 - the worker's parent imports this module, and a process that forks must not

    return openvino


def _convert(transformer: Any, names: Sequence[str], *, packs: bool) -> Any:
    import torch  # noqa: PLC0415 - see CompiledTransformer.__call__

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
    with warnings.catch_warnings(), _quiet_transformers(), _root_logger_as_it_was(), torch.inference_mode():
        # Tracing warns about every Python value it freezes; whether that matters is what the self-test finds out.
        warnings.simplefilter("ignore")
        if packs:
            mask = example.pop("attention_mask")
            example |= {"text_numbers": mask, "position_ids": torch.ones_like(mask)}
            return _openvino().convert_model(_packable(transformer), example_input=example)
        return _openvino().convert_model(_traceable(transformer), example_input=example)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    # Tracing reads every attribute of the model, also those that warn when they are read.
    from transformers.utils import logging  # noqa: PLC0415 - see CompiledTransformer.__call__

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _root_logger_as_it_was() -> Iterator[None]:
    # openvino/tools/ovc/convert.py sets the root logger to ERROR and sets it back only when the conversion succeeds:
    # after a model that it cannot convert, the worker would log no warning for the rest of its life.
    root = logging.getLogger()
    level, handlers, filters = root.level, root.handlers[:], root.filters[:]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:], root.filters[:] = handlers, filters


def _traceable(transformer: Any) -> Any:
    import torch  # noqa: PLC0415 - see CompiledTransformer.__call__

    class Traceable(torch.nn.Module):
        """Tensors in, one tensor out: what can be traced."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
            values = zip(INPUTS, (input_ids, attention_mask, token_type_ids), strict=True)
            features = {name: value for name, value in values if value is not None}
            return self.transformer(features)[transformer.module_output_name]

    return Traceable().eval()


def _packable(transformer: Any) -> Any:
    import torch  # noqa: PLC0415 - see CompiledTransformer.__call__

    class Packable(torch.nn.Module):
        """The same of texts that share rows. All inputs are tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(self, input_ids: Any, text_numbers: Any, position_ids: Any, token_type_ids: Any = None) -> Any:
            features = packed_features(input_ids, text_numbers, position_ids, token_type_ids)
            return self.transformer(features)[transformer.module_output_name]

    return Packable().eval()


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
