"""Moving ingestions on: what a documents worker does for each of them, from its start to its end.

A step takes in what jobs have come to, and enqueues what may be done then: how much is begun, what is loaded, what
ends, what is cancelled, whose workers died. It may be taken twice, at the same time, by workers that die in between:
tasks have ids that follow from the ingestion's, a move names what it expects, and what is cleaned up is looked for
again until it is gone.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.ingestions import ending, fingerprint, listing, loading, page_parsing
from tasks.documents.ingestions.job_tasks import again, enqueue_job, forget, move_on, outcome_of, task_of
from tasks.documents.ingestions.outcomes import take_in
from tasks.documents.ingestions.tools import Tools
from tasks.documents.rounds import Round
from tasks.errors import EmbedqError, NotReady, Unavailable
from tasks.item import TextError
from tasks.ledger.overview import overview
from tasks.records.ingestion_operations import Move, move_ingestion, open_ingestions, read_ingestions
from tasks.records.ingestions import Ingestion, IngestionFault, IngestionStatus

_AT_ONCE = 100
_SAMPLE_EVERY_MS = 10_000
_MODEL_FILES_S = 2.0
"""Until a documents worker looks again whether a model's files are there, however many ingestions wait for them."""


class IngestionSteps:
    """The step of the documents worker."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def __call__(self, context: StepContext) -> bool:
        """Takes one step with each of some open ingestions; whether one of them waits for a moment.

        Raises what the last one raised that could not take its step.
        """
        ids = context.ledger.run(open_ingestions(_AT_ONCE))
        ingestions = Round(context, read_ingestions, self.step).take(ids)
        return any(ingestion.setbacks for ingestion in ingestions)

    def step(self, context: StepContext, ingestion: Ingestion) -> None:
        """Does what is to be done for an ingestion in its state, if anything."""
        if ingestion.status is IngestionStatus.QUEUED:
            _start(context, ingestion, self._tools)
        else:
            _STEPS[ingestion.status](context, ingestion)


def _start(context: StepContext, ingestion: Ingestion, tools: Tools) -> None:
    entry = context.ledger.run(overview(ingestion.model))[ingestion.model].model
    missing = f"files of {entry.revision}" if entry else ""
    if entry is None or context.postponed.waits(missing):
        _await_model(context, ingestion)
        return
    try:
        fields: dict[str, str | int | float] = {
            "revision": entry.revision,
            "dimension": fingerprint.dimension(ingestion.spec, entry),
            "fingerprint": fingerprint.fingerprint(ingestion.spec, entry, tools.parser_version),
            "vectors": fingerprint.vectors(ingestion.spec, entry),
            "warning": fingerprint.warning(ingestion.spec, entry),
        }
        tools.chunker(context, ingestion, entry)
    except NotReady:
        context.postponed.refused(missing, _MODEL_FILES_S)
        _await_model(context, ingestion)
    except Unavailable:
        raise
    except EmbedqError as error:
        ending.stop(context, ingestion, IngestionFault(error.code, error.detail, error.param))
    else:
        move = Move([IngestionStatus.QUEUED], to=IngestionStatus.IN_PROGRESS, set=fields, unset=["waiting_for"])
        move_on(context, ingestion, move, [task_of(ingestion, "list", ingestion.list_number)])


def _await_model(context: StepContext, ingestion: Ingestion) -> None:
    if ingestion.waiting_for != "model":
        move = Move([IngestionStatus.QUEUED], set={"waiting_for": "model"})
        context.ledger.run(move_ingestion(ingestion.id, move))


def _in_progress(context: StepContext, ingestion: Ingestion) -> None:
    ingestion = take_in(context, ingestion)
    page_parsing.step(context, ingestion)
    loading.step(context, ingestion)
    listing.step(context, ingestion)
    _sample(context, ingestion)
    if ingestion.listing_complete and not ingestion.waiting_pages and not ingestion.pages:
        move = Move(
            [IngestionStatus.IN_PROGRESS],
            to=IngestionStatus.FINALIZING,
            equal={"listing_complete": "1", "next_page": ingestion.next_page},
        )
        move_on(context, ingestion, move)


def _sample(context: StepContext, ingestion: Ingestion) -> None:
    last = ingestion.samples[-1] if ingestion.samples else None
    if last is not None and 0 <= ingestion.now_ms - last.at_ms < _SAMPLE_EVERY_MS:
        return
    now = ingestion.sample.to_text()
    older = {"s0": last.to_text()} if last else {"base": now}
    move = Move([IngestionStatus.IN_PROGRESS], set=older | {"s1": now})
    context.ledger.run(move_ingestion(ingestion.id, move))


def _finalizing(context: StepContext, ingestion: Ingestion) -> None:
    counts = ingestion.counts
    if ingestion.spec.get("mode") != "sync" or ingestion.dry_run:
        ending.completed(context, ingestion, 0)
    elif not counts.documents:
        message = "The source has no documents, so nothing was deleted. Look at its path, or delete the dataset."
        ending.stop(context, ingestion, IngestionFault("nothing_listed", message, "source"))
    elif ingestion.finish_state is None:
        enqueue_job(context, ingestion, "finish", ingestion.list_number, Move([IngestionStatus.FINALIZING]))
    elif ingestion.finish_state.terminal:
        _finished(context, ingestion, outcome_of(context, ingestion, "finish", ingestion.list_number))


def _finished(context: StepContext, ingestion: Ingestion, outcome: dict[str, Any] | TextError | None) -> None:
    if isinstance(outcome, TextError):
        if not again(context, ingestion, "finish", ingestion.list_number, outcome):
            ending.stop(context, ingestion, ending.fault_of(outcome))
    elif outcome is not None and "gone" in outcome:
        forget(context, ingestion, "finish", ingestion.list_number)
    elif outcome is not None:
        ending.completed(context, ingestion, outcome.get("deleted", 0))


def _cancelling(context: StepContext, ingestion: Ingestion) -> None:
    ingestion = take_in(context, ingestion)
    if loading.is_under_way(ingestion):
        loading.step_load(context, ingestion)
    if IngestionStatus.FINALIZING not in ingestion.times or ingestion.finish_state is None:
        ending.let_go(context, ingestion)
    elif ingestion.finish_state.terminal:  # what it deletes is let finish, as a load is
        outcome = outcome_of(context, ingestion, "finish", ingestion.list_number)
        ending.let_go(context, ingestion, outcome.get("deleted", 0) if isinstance(outcome, dict) else 0)


_STEPS: Mapping[IngestionStatus, Callable[[StepContext, Ingestion], None]] = {
    IngestionStatus.IN_PROGRESS: _in_progress,
    IngestionStatus.FINALIZING: _finalizing,
    IngestionStatus.CANCELLING: _cancelling,
    **dict.fromkeys([status for status in IngestionStatus if status.terminal], ending.clean_up),
}
