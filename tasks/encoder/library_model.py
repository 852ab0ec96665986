"""The model as sentence-transformers loads it, looked at from all sides before it serves or is a reference."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tasks.encoder.check_model_folder import first_folder, is_bare_model2vec, is_static, read_json, revision_of
from tasks.encoder.check_network import (
    check_prompts,
    check_vocabulary,
    check_weights,
    longest_window,
    weight_reports,
    window_bytes,
)
from tasks.encoder.interface import ModelLoadError
from tasks.encoder.tokenize import StaticTokenizer, Tokenizer
from worker_config.settings import Settings

_log = logging.getLogger(__name__)


class Loaded:
    """A model in float32 on the CPU, checked once, and its revision. Each way to compute takes one of its own.

    Raises:
        ModelLoadError: it cannot be served; the message names the setting or file and the fix.
        Exception: whatever the library raises.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._load = partial(_library_model, settings, folder)
        self._setting = f"EMBEDQ_MODEL={settings.model}"
        self._folder = folder
        with weight_reports() as reports:
            self._model: Any = self._load()
        self._rows, self._window = self._checked(reports)
        self.revision = revision_of(folder)

    def take(self) -> tuple[Any, Tokenizer | StaticTokenizer]:
        """The SentenceTransformer and its tokenizer, which are the caller's afterwards."""
        model, self._model = self._model or self._load(), None
        if is_static(self._folder):
            return model, StaticTokenizer(model)
        tokenizer = Tokenizer(model)
        tokenizer.fit(self._rows, self._window)
        model.max_seq_length = self._window
        return model, tokenizer

    def _checked(self, reports: list[Any]) -> tuple[int, int]:
        """The rows of the network and the tokens of its longest text."""
        model = self._model
        if is_static(self._folder):
            rows = model[0].embedding.num_embeddings
            check_vocabulary(StaticTokenizer(model), rows, model.prompts, self._setting)
            return rows, 0
        if not (self._folder / "modules.json").is_file():
            _log.warning(
                "%s has no modules.json, so nothing says how its vectors are made: the mean over all tokens is taken. "
                "If it was trained another way, its vectors are wrong.",
                self._setting,
            )
        has_adapter = (first_folder(self._folder) / "adapter_config.json").is_file()
        check_weights(model, reports, self._load if has_adapter or not reports else None, self._setting)
        network, tokenizer = model[0].model, Tokenizer(model)
        rows = _rows(network) or max(tokenizer.numbers()[0]) + 1
        check_vocabulary(tokenizer, rows, model.prompts, self._setting)
        [word] = tokenizer(["a"], None)
        claimed = tokenizer.max_tokens
        window = longest_window(network, claimed, word.features["input_ids"][word.length // 2])
        if claimed is not None and window < claimed:
            said = "%s: its files allow %d tokens, its network %d: texts are cut there"
            _log.warning(said, self._setting, claimed, window)
        if (needed := window_bytes(network, window)) > (free := psutil.virtual_memory().available):
            said = (
                "%s: a text of %d tokens may need %.1f GB, and %.1f GB are free: give it more, or lower max_seq_length"
            )
            _log.warning(said, self._setting, window, needed / 1e9, free / 1e9)
        tokenizer.fit(rows, window)
        check_prompts(tokenizer, model.prompts, self._setting)
        return rows, window


def _rows(network: Any) -> int | None:
    """Of the table of tokens; None where code of a model does not tell."""
    try:
        return int(network.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        return None


def _library_model(settings: Settings, folder: Path) -> Any:
    """The SentenceTransformer in float32 on the CPU, checked to be one that can be served.

    Raises:
        ModelLoadError: it begins neither with a transformer over plain text nor with a static model.
    """
    import torch  # noqa: PLC0415 - see _import_libraries
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above
    from sentence_transformers.sentence_transformer.modules import (  # noqa: PLC0415 - as above
        Normalize,
        Router,
        StaticEmbedding,
        Transformer,
    )

    if is_bare_model2vec(folder):
        modules: list[Any] = [StaticEmbedding.load(str(folder))]
        modules += [Normalize()] if read_json(folder / "config.json").get("normalize") else []
        return SentenceTransformer(modules=modules, device="cpu").float()
    model = SentenceTransformer(
        str(folder),
        device="cpu",
        trust_remote_code=settings.trust_remote_code,
        # A tensor of another shape is left to `check_weights`, which names it.
        model_kwargs={"dtype": torch.float32, "ignore_mismatched_sizes": True},
    )
    model.eval()
    first = model[0]
    if isinstance(first, StaticEmbedding):
        return model.float()  # its module knows no `dtype`
    setting = f"EMBEDQ_MODEL={settings.model}"
    if isinstance(first, Router):
        raise ModelLoadError(
            f"{setting} is several models behind a Router ({', '.join(first.sub_modules)}). Save each route "
            "as a model of its own and serve them under names of their own; docs/models.md shows how."
        )
    if not isinstance(first, Transformer) or first.tokenizer is None or "text" not in first.modality_config:
        raise ModelLoadError(
            f"{setting} begins with {type(first).__name__}; only models that begin with a transformer over "
            "text, or with static token vectors, can be served. Choose another model."
        )
    if not first.tokenizer.is_fast:
        raise ModelLoadError(
            f"{setting} has a tokenizer without a fast version (tokenizer.json). Choose another model."
        )
    first.unpad_inputs = False  # with flash attention the library would pack a batch by itself, and hide its lengths
    return model
