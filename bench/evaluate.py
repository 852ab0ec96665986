"""`python -m bench.evaluate DATA`: published quality tables, through the whole service. `make eval DATA=dir` runs it.

Uses the server that `EMBEDQ_URL` names; without it starts the local stack with the settings of the environment.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.quality.datasets import BadDataError, Pairs, Retrieval, read_folder
from bench.quality.ingested import ingested
from bench.quality.published import published
from bench.quality.scores import document_vectors, query_vectors, score_pairs, score_retrieval
from bench.servers.model_settings import chosen
from bench.servers.product import product
from embedq import EmbeddingService
from embedq.errors import EmbedqClientError
from embedq.ingestions import Ingestions
from worker_config.settings import CONFIGURATION_EXIT_CODE, SettingsError, load_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when a score is not the published one, 78 when nothing could be scored."""
    options = _parser().parse_args(arguments)
    try:
        pairs, retrieval = read_folder(options.data)
        with _server_url() as url:
            faithful = asyncio.run(_evaluate(url, pairs, retrieval, options))
    except (BadDataError, SettingsError, EmbedqClientError, AssertionError) as error:
        print(error, file=sys.stderr)
        return CONFIGURATION_EXIT_CODE
    return 0 if faithful else 1


@contextmanager
def _server_url() -> Iterator[str]:
    if url := os.environ.get("EMBEDQ_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="embedq-eval-") as folder:
        print("starting the local stack", file=sys.stderr)
        with product(Path(folder), chosen(load_settings())) as server:
            yield server.base_url.removesuffix("/v1")


async def _evaluate(
    url: str, pairs: Sequence[Pairs], retrieval: Sequence[Retrieval], options: argparse.Namespace
) -> bool:
    async with EmbeddingService(url, timeout_s=3600) as service, Ingestions(url, timeout_s=3600) as server:
        model = (await service.get_model_info())["model_name"]
        print(f"{model} at {url}\n")
        print(f"| {'data':17} | {'metric':18} | score   | published | difference | verdict |")
        print(f"| {'---':17} | {'---':18} | ------: | --------: | ---------: | ------- |")
        verdicts = [_print(model, data.name, await score_pairs(service, data)) for data in pairs]
        for data in retrieval:
            queries = await query_vectors(service, data, options.query_prompt)
            vectors = await document_vectors(service, data, options.document_prompt)
            verdicts.append(_print(model, data.name, score_retrieval(data, queries, vectors, list(data.documents))))
            ids, vectors = await ingested(server, data, options.document_prompt)
            scores = score_retrieval(data, queries, vectors, ids)
            verdicts.append(_print(model, data.name, scores, way="ingested"))
    return all(verdicts)


def _print(model: str, dataset: str, scores: Mapping[str, float], way: str = "") -> bool:
    """Whether every score that somebody has published was met. `way`: how the documents became vectors."""
    faithful = True
    shown = f"{dataset}, {way}" if way else dataset
    for metric, score in scores.items():
        known = published(model, dataset, metric)
        line = f"| {shown:17} | {metric:18} | {score:.5f} |"
        if known is None:
            print(f"{line} {'':9} | {'':10} | {'':7} |", flush=True)
            continue
        met = abs(score - known.score) <= known.tolerance
        faithful &= met
        verdict = "met" if met else f"not within {known.tolerance} of {known.source}"
        print(f"{line}   {known.score:.5f} |   {score - known.score:+.5f} | {verdict:7} |", flush=True)
    return faithful


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.evaluate", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with sts/*.csv and beir/*/")
    parser.add_argument("--query-prompt", help="prompt_name of queries, for models that have prompts")
    parser.add_argument("--document-prompt", help="prompt_name of documents; ingested ones find the model's own")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
