"""The model as the library loads it: a SentenceTransformer in float32, checked to be one that can be served."""

import logging
from typing import Any

from tasks.model.chat_template import chat_frame, expects_messages
from tasks.model.encoder import ModelLoadError, is_out_of_memory
from tasks.model.location import locate
from tasks.model.static_model import is_bare_model2vec, is_static, load_bare_model2vec
from worker_config.settings import Settings

_log = logging.getLogger(__name__)


def load_torch_model(settings: Settings, device: str) -> Any:
    """The SentenceTransformer that `EMBEDQ_MODEL` names, on the device, in float32.

    Raises:
        ModelLoadError: it is not there, or begins neither with a transformer over plain text nor with a static model.
        Exception: whatever the library raises; `explain` makes a message of it.
    """
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above
    from sentence_transformers.util import is_sentence_transformer_model  # noqa: PLC0415 - as above
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - as above

    transformers_logging.disable_progress_bar()  # a bar in a log is a hundred lines of noise
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    place = locate(settings.model)
    if is_bare_model2vec(place):
        return load_bare_model2vec(place, device).float()
    model = SentenceTransformer(
        place,
        device=device,
        trust_remote_code=settings.trust_remote_code,
        # Whatever the files hold: the reference of the self-test is computed in float32, then it is converted.
        model_kwargs={"dtype": torch.float32},
    )
    if is_static(model):
        return model.float()  # its module knows no `dtype`
    _require_text_transformer(model, settings.model)
    if not is_sentence_transformer_model(place):
        _log.warning(
            "EMBEDQ_MODEL=%s has no modules.json, so nothing says how its vectors are made: the mean over all tokens "
            "is taken. If it was trained another way, or is a reranker, its vectors are wrong.",
            settings.model,
        )
    return model


def explain(error: Exception, model: str) -> ModelLoadError:
    """Whatever the library raised, as one message that names the setting and the fix."""
    setting = f"EMBEDQ_MODEL={model}"
    text = str(error)
    if is_out_of_memory(error):
        return ModelLoadError(f"{setting}: not enough memory to load it. Give the worker more, or set a smaller model.")
    if "trust_remote_code" in text:
        return ModelLoadError(
            f"{setting} needs Python code from its repository. If you have read that code and trust it, "
            "set EMBEDQ_TRUST_REMOTE_CODE=true; otherwise choose another model."
        )
    if isinstance(error, ImportError):
        return ModelLoadError(f"{setting}: {text}. Install the worker's packages: pip install 'embedq[worker]'.")
    reason = f"{type(error).__name__}: {(text.splitlines() or [''])[0][:300]}"
    if isinstance(error, OSError):
        return ModelLoadError(
            f"{setting} was not found: it is no folder, and neither in the local cache nor on the hub. "
            f"Set it to a folder or a hub id; without a network, fill the cache first. ({reason})"
        )
    return ModelLoadError(f"{setting} cannot be loaded as an embedding model. Choose another model. ({reason})")


def _require_text_transformer(model: Any, name: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Router, Transformer  # noqa: PLC0415 - as above

    first = model[0]
    if isinstance(first, Router):
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} is several models behind a Router ({', '.join(first.sub_modules)}). Save each route "
            "as a model of its own and serve them under names of their own; docs/models.md shows how."
        )
    if not isinstance(first, Transformer) or first.tokenizer is None or "text" not in first.modality_config:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} begins with {type(first).__name__}; only models that begin with a transformer over "
            "text, or with static token vectors, can be served. Choose another model."
        )
    if not first.tokenizer.is_fast:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} has a tokenizer without a fast version and cannot be served. Choose another model."
        )
    if expects_messages(first) and chat_frame(model) is None:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={name} expects chat messages, and its chat template does more than to put a text between a "
            "fixed beginning and end. Choose another model."
        )
    first.unpad_inputs = False  # with flash attention the library would pack a batch by itself, and hide its lengths
