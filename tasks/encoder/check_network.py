"""Is what the library has loaded the model of these files? Looked at once, before its vectors are a reference.

The library fills tensors that it does not find with random numbers, makes a tokenizer of five tokens where there is no
vocabulary, and believes a maximum that the network does not have.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np

from tasks.encoder.interface import Float32Array, ModelLoadError, is_out_of_memory
from tasks.encoder.self_test import LONGEST_TRIED, TEXTS, worst_cosine
from tasks.encoder.tokenize import StaticTokenizer, Tokenizer

_log = logging.getLogger(__name__)

_FEWEST_TOKENS = 12
"""That the texts of the self-test have in any language. A tokenizer without a vocabulary has five in all."""
_LEAST_VOCABULARY = 0.9
"""Of the rows of a network. Some have a few hundred more than the tokenizer, to be divisible."""
_LARGE_PROMPT = 0.75
_MOST_TRIED = 8192
"""Tokens of the longest text that is tried: networks whose positions are a table have no more."""
_ALIKE = 1 - 1e-6
"""The cosine of vectors that are one."""


@contextmanager
def weight_reports() -> Iterator[list[Mapping[str, Any]]]:
    """What transformers says of the weights that it loads meanwhile, by `output_loading_info` of its documentation.

    sentence-transformers calls it and does not pass this on. Code of a model that loads weights itself reports nothing.
    """
    from transformers import PreTrainedModel  # noqa: PLC0415 - the worker's parent must stay without torch

    reports: list[Mapping[str, Any]] = []
    plain = PreTrainedModel.from_pretrained.__func__

    def reporting(cls: Any, *args: Any, **options: Any) -> Any:
        loaded, report = plain(cls, *args, **options | {"output_loading_info": True})
        reports.append(report)
        return (loaded, report) if options.get("output_loading_info") else loaded

    PreTrainedModel.from_pretrained = classmethod(reporting)
    try:
        yield reports
    finally:
        PreTrainedModel.from_pretrained = classmethod(plain)


def check_weights(
    model: Any, reports: Sequence[Mapping[str, Any]], again: Callable[[], Any] | None, setting: str
) -> None:
    """Whether all that vectors need was in the files, and nothing of this network was left in them.

    Args:
        model: a SentenceTransformer that begins with a transformer, on the CPU.
        reports: of its loading.
        again: loads it once more, where no report tells of all weights: random numbers are others then.
        setting: how messages begin.

    Raises:
        ModelLoadError: a tensor that vectors need is missing or misshapen, or layers are not used.
    """
    network = model[0].model
    parameters = dict(network.named_parameters())
    missing = {_name(key) for report in reports for key in (*report["missing_keys"], *report["mismatched_keys"])}
    if again is not None:
        missing |= _different(parameters, again()[0].model.named_parameters())
    lacking = sorted(missing & parameters.keys())
    if lacking and _any_needed(model, [parameters[name] for name in lacking]):
        first = next(name for name in lacking if _any_needed(model, [parameters[name]]))
        raise ModelLoadError(
            f"{setting}: {first}, which vectors need, and {len(lacking) - 1} other tensors are not in its files, or "
            "misshapen. The library fills them with random numbers. Fetch the files again, or save the model again."
        )
    prefix = f"{network.base_model_prefix}."
    layers = {_without_numbers(name) for name in parameters}
    unexpected = sorted({_name(key).removeprefix(prefix) for report in reports for key in report["unexpected_keys"]})
    if unused := [name for name in unexpected if name not in parameters and _without_numbers(name) in layers]:
        raise ModelLoadError(
            f"{setting}: its files hold {len(unused)} tensors of layers that this network does not have, such as "
            f"{unused[0]}. config.json says fewer layers than were trained. Fetch the model's own config.json."
        )


def _name(key: Any) -> str:
    return str(key[0] if isinstance(key, tuple) else key)  # a misshapen one comes with both shapes


def _without_numbers(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _different(parameters: Mapping[str, Any], others: Iterable[tuple[str, Any]]) -> set[str]:
    import torch  # noqa: PLC0415 - see weight_reports

    def alike(name: str, other: Any) -> bool:
        return name not in parameters or torch.allclose(parameters[name], other, rtol=0, atol=0, equal_nan=True)

    return {name for name, other in others if not alike(name, other)}


def _any_needed(model: Any, parameters: Sequence[Any]) -> bool:
    """Whether vectors depend on any of them: a pooler that no vector needs may be absent."""
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.data.fill_(float("nan"))
        return not bool(np.isfinite(model.encode([TEXTS[0]], show_progress_bar=False)).all())
    finally:
        for parameter, before in zip(parameters, kept, strict=True):
            parameter.data.copy_(before)


def check_vocabulary(tokenizer: Tokenizer | StaticTokenizer, rows: int, prompts: Iterable[str], setting: str) -> None:
    """Whether the tokenizer knows words, and whether the network has a row for each of them.

    Special tokens that no prompt uses may be without a row: a text that holds one fails.

    Raises:
        ModelLoadError: it has five tokens in all, a part of a vocabulary, or words without rows.
    """
    numbers, special = tokenizer.numbers()
    used = {
        number for name in (None, *prompts) for text in tokenizer(TEXTS, name) for number in text.features["input_ids"]
    }
    if isinstance(tokenizer, Tokenizer) and (len(used) < _FEWEST_TOKENS or len(numbers) < _LEAST_VOCABULARY * rows):
        raise ModelLoadError(
            f"{setting} has no vocabulary, or a part of one: its tokenizer knows {len(numbers)} tokens, its network "
            f"{rows}. Fetch the files of the tokenizer again (tokenizer.json, vocab.txt)."
        )
    if max((numbers - special) | used) >= rows:
        raise ModelLoadError(
            f"{setting}: its tokenizer needs {max(numbers) + 1} rows, one for each token, and the network has {rows}. "
            "Tokens were added without resize_token_embeddings: call it, train them, and save the model again."
        )


def check_vectors(tokenizer: Tokenizer | StaticTokenizer, vectors: Float32Array, setting: str) -> None:
    """Whether different texts have different vectors.

    Args:
        tokenizer: of the model.
        vectors: of `TEXTS` and perhaps of others behind them, float32 [n, d].
        setting: how messages begin.

    Raises:
        ModelLoadError: two texts of different tokens have one vector, other than 0.
    """
    tokens = [text.features["input_ids"] for text in tokenizer(TEXTS, None)]
    for one, other in combinations([number for number in range(len(TEXTS)) if vectors[number].any()], 2):
        if tokens[one] != tokens[other] and worst_cosine(vectors[[one]], vectors[[other]]) > _ALIKE:
            raise ModelLoadError(
                f"{setting} gives one vector for different words. Its weights or its vocabulary are not those of its "
                "training: fetch the files again, or save the model again."
            )


def check_prompts(tokenizer: Tokenizer | StaticTokenizer, prompts: Mapping[str, str], setting: str) -> None:
    """Whether prompts leave room for texts; one that leaves little is a warning.

    Raises:
        ModelLoadError: one fills the window.
    """
    window = tokenizer.max_tokens
    for name, prompt in prompts.items():
        length = tokenizer([""], name)[0].full_length
        if window is None or not prompt or length < _LARGE_PROMPT * window:
            continue
        said = f"{setting}: its prompt {name} has {length} tokens, special ones included, and a text may have {window}"
        if length >= window:
            raise ModelLoadError(f"{said}, so all texts behind it would have one vector. Shorten it, or remove it.")
        _log.warning("%s, so the rest is cut off early", said)


def longest_window(network: Any, claimed: int | None, token: int) -> int:
    """Tokens of the longest text that the network takes, found by trying its embeddings.

    Args:
        network: of transformers, on the CPU.
        claimed: tokens that its files allow; None: any number. Such a network gets `LONGEST_TRIED`: with a number that
            depended on free memory, two workers would cut a text in two places.
        token: the number of some word.
    """
    most = claimed or LONGEST_TRIED
    passes = _embeddings_of(network, token)
    if passes(min(most, _MOST_TRIED)) or not passes(1):  # one that cannot be tried like this is left to the self-test
        return most
    least = 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if passes(middle) else (least, middle)
    return least


def window_bytes(network: Any, tokens: int) -> float:
    """Estimated memory of a pass over one text of so many tokens: a few float32 of each, and a mask of all by all."""
    hidden = getattr(network.config, "hidden_size", None) or 1
    return float(tokens * (12 * 4 * hidden + tokens))


class _Reached(Exception):
    """Not an error: the embeddings have passed."""


def _embeddings_of(network: Any, token: int) -> Callable[[int], bool]:
    """Whether so many tokens pass the embeddings, or where these are no module what stands in front of the layers."""
    import torch  # noqa: PLC0415 - see weight_reports

    embeddings = getattr(network, "embeddings", None)
    layers = next((part for part in network.modules() if isinstance(part, torch.nn.ModuleList) and len(part)), None)

    def reached(*_: Any) -> None:
        raise _Reached

    def passes(tokens: int) -> bool:
        if isinstance(embeddings, torch.nn.Module):
            hook = embeddings.register_forward_hook(reached)
        else:
            hook = (network if layers is None else layers[0]).register_forward_pre_hook(reached)
        try:
            with torch.inference_mode():
                network(input_ids=torch.full((1, tokens), token, dtype=torch.int64))
        except _Reached:
            return True
        except Exception as error:
            if is_out_of_memory(error):  # this machine ends there, and not the network
                raise
            return False
        finally:
            hook.remove()
        return True

    return passes
