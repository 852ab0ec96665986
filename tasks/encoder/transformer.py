"""The real encoder: a sentence-transformers model, its first module run by torch or compiled by OpenVINO.

The library keeps everything that gives a vector its meaning: its tokenizer and prompts, its modules that pool, project
and normalise. Ours is when: texts are tokenized once, and padded per micro-batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tasks.encoder.interface import EncoderBroken, Float32Array, Layout, TextRules, Tokens
from tasks.encoder.openvino import CompiledTransformer
from tasks.encoder.prompts import prompts_by_purpose
from tasks.encoder.self_test import TEXTS, reference_texts
from tasks.encoder.tokenize import StaticTokenizer, Tokenizer
from tasks.item import UNLIMITED_TOKENS
from tasks.model import Model


class TransformerEncoder:
    """An encoder around a loaded model.

    Args:
        model: a SentenceTransformer on its device, in float32, that begins with a transformer over text or with static
            token vectors. Afterwards it is this encoder's: converted to `precision`, or without its transformer's
            weights.
        tokenizer: of the model.
        name: hub id or folder name, for `info`.
        revision: for `info`.
        compute: `torch`, or `openvino` (on the CPU).
        precision: the name of a torch dtype.
        streams: threads that may encode at the same time.
        threads: of OpenVINO, shared by all streams; None: one for each core.

    Raises:
        WayUnusable: OpenVINO cannot compile it.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer | StaticTokenizer,
        *,
        name: str,
        revision: str,
        compute: str = "torch",
        precision: str = "float32",
        streams: int = 1,
        threads: int | None = None,
    ) -> None:
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

        self.streams = streams
        self.reference_texts = reference_texts(tokenizer, getattr(model.tokenizer, "all_special_tokens", ()))
        # In float32 whatever the files hold. The first ones are padded by each other, which must not change them: they
        # are compared with passes that are padded otherwise. The others are alone.
        batches = [self.reference_texts[: len(TEXTS)], *([text] for text in self.reference_texts[len(TEXTS) :])]
        reference = [model.encode(list(batch), show_progress_bar=False) for batch in batches]
        self.reference: Float32Array = np.concatenate(reference).astype(np.float32)
        self.needs_tokens = isinstance(tokenizer, Tokenizer)
        described = _described(model, tokenizer, self.reference)
        self.info = Model(name, revision, compute=compute, precision=precision, **described)
        if isinstance(tokenizer, Tokenizer):
            tokenizer.take()
        self._tokenizer = tokenizer
        self._device = model.device
        self._compiled: CompiledTransformer | None = None
        self._modules = list(model)
        self.row_widths: tuple[int, ...] = ()
        if compute == "openvino":
            self._compiled = CompiledTransformer(
                model[0], tokenizer.names, precision=precision, streams=streams, threads=threads
            )
            self.row_widths = self._compiled.row_widths
            model[0].to("meta")  # nobody needs its weights any more
            del self._modules[0]
        else:
            model.to(dtype=getattr(torch, precision))

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        """See `Encoder.tokenize`."""
        return self._tokenizer(texts, prompt_name)

    def text_rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        return self._tokenizer.rules()

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        """See `Encoder.forward`."""
        import torch  # noqa: PLC0415 - see __init__

        padded = self._tokenizer.pad(texts)
        with _device_errors(), torch.inference_mode():
            features: dict[str, Any] = {name: torch.from_numpy(values) for name, values in padded.items()}
            features = {name: tensor.to(self._device) for name, tensor in features.items()}
            if self._compiled is not None:
                features[self._compiled.output] = torch.from_numpy(self._compiled(padded, layout))
            if texts[0].prompt_length is not None:
                features["prompt_length"] = texts[0].prompt_length
            for module in self._modules:
                features = module(features)
            # A model saved with `truncate_dim` has fewer components than its modules give; the library cuts last.
            vectors: Float32Array = features["sentence_embedding"][:, : self.info.dimension].float().cpu().numpy()
            return vectors


def _described(model: Any, tokenizer: Tokenizer | StaticTokenizer, vectors: Float32Array) -> dict[str, Any]:
    query_prompt, document_prompt = prompts_by_purpose(model.prompts)
    return {
        "dimension": vectors.shape[1],
        "max_tokens": tokenizer.max_tokens or UNLIMITED_TOKENS,
        "prompts": tuple(model.prompts),
        "device": str(model.device),
        "query_prompt": query_prompt,
        "document_prompt": document_prompt,
        "similarity": _similarity(model, vectors),
    }


def _similarity(model: Any, vectors: Float32Array) -> str:
    """As the author of the model has it, `cosine` by default. Of vectors of length 1 the dot product is the cosine."""
    lengths = np.linalg.norm(vectors, axis=1)
    has_unit_length = np.allclose(lengths[lengths > 0], 1, atol=1e-3)  # static models have texts of length 0
    return "cosine" if model.similarity_fn_name == "dot" and has_unit_length else str(model.similarity_fn_name)


@contextmanager
def _device_errors() -> Iterator[None]:
    """Tells a device that is lost from one that is full.

    Raises:
        EncoderBroken: it is lost.
    """
    import torch  # noqa: PLC0415 - see TransformerEncoder

    try:
        yield
    except torch.AcceleratorError as error:
        if "out of memory" in str(error):
            raise
        raise EncoderBroken("the accelerator failed; this process cannot use it any more") from error
