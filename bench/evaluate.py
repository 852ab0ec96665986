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

from bench import quality
from bench.quality import BadDataError, Scores
from bench.report import markdown
from bench.servers.product import model_settings, product
from embedq import EmbeddingService
from embedq.errors import EmbedqClientError
from embedq.ingestions import Ingestions
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE
from worker_config.settings import SettingsError

_HEAD = ("data", "metric", "score", "published", "difference", "verdict")
_PUBLISHED: Mapping[str, Mapping[tuple[str, str], tuple[float, float]]] = {
    "all-MiniLM-L6-v2": {
        ("stsb-en-test", "Spearman of cosine"): (0.82032, 0.001),
        ("scifact", "nDCG@10"): (0.64508, 0.002),
        ("scifact", "MRR@10"): (0.60472, 0.004),
        ("scifact", "R@100"): (0.92500, 0.004),
    }
}
"""Scores of the model card and of MTEB, and how far a faithful service may be off."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when a score is not the published one, 78 when nothing could be scored."""
    options = _parser().parse_args(arguments)
    try:
        with _server_url() as url:
            rows = asyncio.run(_evaluate(url, options))
    except (BadDataError, SettingsError, EmbedqClientError, AssertionError) as error:
        print(error, file=sys.stderr)
        return CONFIGURATION_EXIT_CODE
    print(markdown(_HEAD, rows))
    return int(any(row[-1] == "missed" for row in rows))


@contextmanager
def _server_url() -> Iterator[str]:
    if url := os.environ.get("EMBEDQ_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="embedq-eval-") as folder:
        print("starting the local stack", file=sys.stderr)
        with product(Path(folder), model_settings()) as server:
            yield server.base_url.removesuffix("/v1")


async def _evaluate(url: str, options: argparse.Namespace) -> list[list[str]]:
    async with EmbeddingService(url, timeout_s=3600) as service, Ingestions(url, timeout_s=3600) as server:
        model = (await service.get_model_info())["model_name"]
        rows = []
        for file in sorted(options.data.glob("sts/*.csv")):
            rows += judged(model, file.stem, await quality.of_pairs(service, file))
        for folder in sorted(path.parent for path in options.data.glob("beir/*/corpus.jsonl")):
            scores = await quality.of_retrieval(service, server, folder, options.query_prompt, options.document_prompt)
            rows += judged(model, folder.name, scores)
    if not rows:
        raise BadDataError(f"{options.data} holds neither sts/*.csv nor beir/*/corpus.jsonl")
    return rows


def judged(model: str, data: str, scores: Scores) -> list[list[str]]:
    """Lines of the table: each score, beside the published one if somebody has published it."""
    rows = []
    for metric, score in scores.items():
        known = _PUBLISHED.get(model.rpartition("/")[2], {}).get((data, metric))
        rest = ["", "", ""]
        if known is not None:
            published, tolerance = known
            difference = score - published
            rest = [f"{published:.5f}", f"{difference:+.5f}", "met" if abs(difference) <= tolerance else "missed"]
        rows.append([data, metric, f"{score:.5f}", *rest])
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.evaluate", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with sts/*.csv and beir/*/")
    parser.add_argument("--query-prompt", help="prompt_name of queries, for models that have prompts")
    parser.add_argument("--document-prompt", help="prompt_name of documents; None: the model's own")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
