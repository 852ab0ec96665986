"""The real encoder: a sentence-transformers model on torch.

The library keeps everything that gives a vector its meaning: its preprocessing writes the prompt in front and cuts,
its modules pool, project and normalise. Ours is when: texts are tokenized once, and padded per micro-batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.model.encoder import TokenizedText
from tasks.model.errors import EncoderBroken, ModelLoadError
from tasks.model.self_test import TEXTS
from tasks.model.types import Float32Array, ModelInfo

_UNLIMITED_TOKENS = 2**31 - 1
"""Stands for "no maximum": the library's own stand-in, 1e30, fits no integer."""

_OWN_ROWS: Mapping[str, Any] = {
    # Overflowing tokens tell how long a text was before it was cut, without tokenizing it again.
    "text": {"padding": False, "return_overflowing_tokens": True},
    "common": {"return_tensors": None},
}


class SentenceEncoder:
    """An encoder around a loaded model.

    Args:
        model: a SentenceTransformer on its device, in float32; afterwards it is this encoder's and has `precision`.
        name: hub id or folder name, for `info`.
        revision: for `info`.
        precision: `float32`, `float16` or `bfloat16`.

    Raises:
        ModelLoadError: the model does not begin with a transformer over plain text.
    """

    def __init__(self, model: Any, *, name: str, revision: str, precision: str = "float32") -> None:
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above

        _require_text_transformer(model, name)
        model.eval()
        self.reference: Float32Array = np.asarray(model.encode(list(TEXTS), show_progress_bar=False), dtype=np.float32)
        self._model: SentenceTransformer = model.to(dtype=getattr(torch, precision))
        self._pooling_skips_prompt = _pooling_skips_prompt(model)
        tokenizer = model.tokenizer
        self._special_tokens: int = tokenizer.num_special_tokens_to_add(pair=False)
        self._pads_left = tokenizer.padding_side == "left"
        self._fill = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
        self.info = ModelInfo(
            model=name,
            revision=revision,
            dimension=self.reference.shape[1],
            max_tokens=int(min(model.max_seq_length or _UNLIMITED_TOKENS, _UNLIMITED_TOKENS)),
            prompts=tuple(model.prompts),
            device=str(model.device),
            compute="torch",
            precision=precision,
        )

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[TokenizedText]:
        """See `Encoder.tokenize`."""
        name = prompt_name if prompt_name is not None else self._model.default_prompt_name
        prompt = self._model.prompts[name] if name is not None else None
        rows: dict[str, Any] = dict(self._model.preprocess(list(texts), prompt=prompt, processing_kwargs=_OWN_ROWS))
        samples: list[int] = rows.pop("overflow_to_sample_mapping")
        prompt_length: int | None = rows.pop("prompt_length", None)
        pieces = [len(ids) for ids in rows["input_ids"]]
        per_token = {key: value for key, value in rows.items() if isinstance(value, list)}
        full, first = self._full_lengths(samples, pieces)
        return [
            TokenizedText(
                features={key: value[piece] for key, value in per_token.items()},
                length=pieces[piece],
                full_length=full[sample],
                prompt_length=prompt_length if self._pooling_skips_prompt else None,
            )
            for sample, piece in first.items()
        ]

    def forward(self, batch: Sequence[TokenizedText]) -> Float32Array:
        """See `Encoder.forward`."""
        import torch  # noqa: PLC0415 - see __init__

        features: dict[str, Any] = {
            name: torch.from_numpy(self._padded(name, [text.features[name] for text in batch])).to(self._model.device)
            for name in batch[0].features
        }
        if batch[0].prompt_length is not None:
            features["prompt_length"] = batch[0].prompt_length
        try:
            with torch.inference_mode():
                vectors = self._model(features)["sentence_embedding"]
            return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)
        except torch.AcceleratorError as error:
            if "out of memory" in str(error):
                raise
            raise EncoderBroken("the accelerator failed; this process cannot use it any more") from error

    def _padded(self, name: str, rows: Sequence[Sequence[int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        longest = max(map(len, rows))
        padded = np.full((len(rows), longest), self._fill.get(name, 0), dtype=np.int64)
        for target, row in zip(padded, rows, strict=True):
            target[longest - len(row) if self._pads_left else 0 :][: len(row)] = row
        return padded

    def _full_lengths(self, samples: Iterable[int], pieces: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        # A cut text comes back in pieces, each with its own special tokens; the first piece is what the model sees.
        full: dict[int, int] = {}
        first: dict[int, int] = {}
        for piece, sample in enumerate(samples):
            if sample in first:
                full[sample] += pieces[piece] - self._special_tokens
            else:
                first[sample], full[sample] = piece, pieces[piece]
        return full, first


def _require_text_transformer(model: Any, name: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Transformer  # noqa: PLC0415 - see SentenceEncoder

    first = model[0]
    if not isinstance(first, Transformer) or first.tokenizer is None or "text" not in first.modality_config:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} begins with {type(first).__name__}; only models that begin with a transformer over "
            "text can be served. Choose another model."
        )
    if not first.tokenizer.is_fast:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} has a tokenizer without a fast version and cannot be served. Choose another model."
        )
    if "message" in first.modality_config:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} expects chat messages, not texts, and cannot be served. Choose another model."
        )
    first.unpad_inputs = False  # with flash attention the library would pack a batch by itself, and hide its lengths


def _pooling_skips_prompt(model: Any) -> bool:
    from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: PLC0415 - see SentenceEncoder

    return any(isinstance(module, Pooling) and not module.include_prompt for module in model)
