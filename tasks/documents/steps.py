"""The steps that every documents worker takes: what moves batches and ingestions from stage to stage.

Twice a second, and when something has moved. Several workers take them at the same time, and any of them may die
in the middle: a step is idempotent.
"""

from collections.abc import Callable
from typing import TypeAlias

from tasks.documents.batches.steps import step_batches
from tasks.documents.context import StepContext
from tasks.documents.ingestions.real_tools import TOOLS
from tasks.documents.ingestions.steps import IngestionSteps
from tasks.documents.sweeping import Sweeping

Step: TypeAlias = Callable[[StepContext], bool | None]
"""True: the next round should come soon. May raise: the other steps are taken all the same, and this one again in the
next round."""

STEPS: list[Step] = [step_batches, IngestionSteps(TOOLS)]

SWEEPS: list[Step] = [Sweeping()]
"""What takes as long as the storage is large: it has a thread of its own."""
