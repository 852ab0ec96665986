"""The real encoder: a sentence-transformers model, its transformer run by torch or compiled by OpenVINO.

The library keeps everything that gives a vector its meaning: its tokenizer and prompts, its modules that pool, project
and normalise. Ours is when: texts are tokenized once, and padded per micro-batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from tasks.encoder.prompts import prompts_by_purpose
from tasks.item import UNLIMITED_TOKENS
from tasks.model.compiled import CompiledTransformer
from tasks.model.device import Way
from tasks.model.encoder import Float32Array, Launch, ModelInfo, TextRules, TokenizedText
from tasks.model.packing import first_position
from tasks.model.self_test import TEXTS
from tasks.model.static_model import StaticTokenizer, is_static
from tasks.model.tokenizing import Tokenizer
from tasks.model.transfer import OnCard, OnCpu, Transfer, device_errors
from tasks.model.unpadded import UnpaddedTransformer, unpadded


class SentenceEncoder:
    """An encoder around a loaded model.

    Args:
        model: a SentenceTransformer on its device, in float32, that begins with a transformer over text or with static
            token vectors. Afterwards it is this encoder's: converted to the precision of `way`, or without its
            transformer's weights.
        name: hub id or folder name, for `info`.
        revision: for `info`.
        way: with torch, or compiled by OpenVINO (on the CPU).
        streams: threads that may encode at the same time.
        threads: of OpenVINO, shared by all streams; None: one for each core.
        lone_threads: of OpenVINO; `all`: a pass that is alone gets all threads, `stream`: those of its stream.
        transfer: to the model's device and back; None: as suits the device.

    Raises:
        WayUnusable: OpenVINO cannot compile it.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str,
        revision: str,
        way: Way,
        streams: int = 1,
        threads: int | None = None,
        lone_threads: Literal["all", "stream"] = "all",
        transfer: Transfer | None = None,
    ) -> None:
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

        model.eval()
        self.streams = streams
        device = model.device
        self._transfer = transfer or (OnCard(device) if device.type == "cuda" else OnCpu())
        self.launch: Launch | None = None if self._transfer.waits else self._launch
        self.reference: Float32Array = np.asarray(model.encode(list(TEXTS), show_progress_bar=False), dtype=np.float32)
        self._tokenizer: Tokenizer | StaticTokenizer = (
            StaticTokenizer(model) if is_static(model) else Tokenizer(model, marks_prompt=_pooling_skips_prompt(model))
        )
        self._modules: list[Callable[[dict[str, Any]], dict[str, Any]]] = list(model)
        self._alone = self._modules[0]
        if way.compute == "openvino":
            self._compile(model, way.precision, threads, lone_threads)
        else:
            first = self._first_position(model)
            model.to(dtype=getattr(torch, way.precision))
            if first is not None and (row := unpadded(model[0], self._tokenizer.names, first, self._transfer)):
                self._modules[0] = self._alone = row
        query_prompt, document_prompt = prompts_by_purpose(model.prompts)
        self.info = ModelInfo(
            model=name,
            revision=revision,
            dimension=self.reference.shape[1],
            max_tokens=int(min(self._tokenizer.max_tokens or UNLIMITED_TOKENS, UNLIMITED_TOKENS)),
            prompts=tuple(model.prompts),
            device=str(device),
            compute=way.compute,
            precision=way.precision,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            similarity=_similarity(model, self.reference),
        )

    def _compile(self, model: Any, precision: str, threads: int | None, lone_threads: Literal["all", "stream"]) -> None:
        compiled = CompiledTransformer(
            model[0],
            self._tokenizer.names,
            precision=precision,
            streams=self.streams,
            threads=threads,
            lone_threads=lone_threads,
        )
        self._modules[0], self._alone = compiled, compiled.alone
        model[0].to("meta")  # nobody needs its weights any more

    def _first_position(self, model: Any) -> int | None:
        """Of texts in one row, in a model in float32; None: they may not be, or the device gains nothing by it."""
        if self._transfer.attention is None or not isinstance(self._tokenizer, Tokenizer):
            return None
        device = model.device
        try:
            return first_position(model[0].to("cpu"), self._tokenizer.names)
        finally:
            model[0].to(device)

    @property
    def row_widths(self) -> tuple[int, ...]:
        """See `Encoder.row_widths`."""
        first = self._modules[0]
        return first.row_widths if isinstance(first, CompiledTransformer | UnpaddedTransformer) else ()

    @property
    def lone_widths(self) -> tuple[int, ...]:
        """See `Encoder.lone_widths`."""
        first = self._modules[0]
        return first.lone_widths if isinstance(first, CompiledTransformer) else ()

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[TokenizedText]:
        """See `Encoder.tokenize`."""
        return self._tokenizer(texts, prompt_name)

    def text_rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        return self._tokenizer.rules()

    def forward(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Float32Array:
        """See `Encoder.forward`."""
        return self._launch(batch, alone=alone)()

    def _launch(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Callable[[], Float32Array]:
        import torch  # noqa: PLC0415 - see __init__

        features: dict[str, Any] = {}
        if batch[0].prompt_length is not None:
            features["prompt_length"] = batch[0].prompt_length
        transformer, *others = self._modules
        arrays = self._tokenizer.pad(batch)
        if isinstance(transformer, UnpaddedTransformer):
            arrays = transformer.lay_out(arrays)
        with device_errors(), torch.inference_mode():
            features |= {name: self._transfer.send(array) for name, array in arrays.items()}
            features = (self._alone if alone else transformer)(features)
            for module in others:
                features = module(features)
            # A model saved with `truncate_dim` has fewer components than its modules give; the library cuts last.
            collect = self._transfer.collect(features["sentence_embedding"][:, : self.info.dimension])

        def collected() -> Float32Array:
            with device_errors():
                return collect()

        return collected


def _similarity(model: Any, vectors: Float32Array) -> str:
    """As the author of the model has it, `cosine` by default. Of vectors of length 1 the dot product is the cosine."""
    lengths = np.linalg.norm(vectors, axis=1)
    has_unit_length = np.allclose(lengths[lengths > 0], 1, atol=1e-3)  # static models have texts of length 0
    return "cosine" if model.similarity_fn_name == "dot" and has_unit_length else str(model.similarity_fn_name)


def _pooling_skips_prompt(model: Any) -> bool:
    from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: PLC0415 - see SentenceEncoder

    return any(isinstance(module, Pooling) and not module.include_prompt for module in model)
