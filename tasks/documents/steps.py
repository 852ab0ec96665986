"""The steps that every documents worker takes twice a second: what moves batches from one stage to the next.

Several workers take them at the same time, and any of them may die in the middle: a step is idempotent.
"""

from collections.abc import Callable
from typing import TypeAlias

from tasks.documents.batches.steps import step_batches
from tasks.documents.context import StepContext
from tasks.documents.sweeping import Sweeping

Step: TypeAlias = Callable[[StepContext], None]
"""May raise: the other steps are taken all the same, and this one again half a second later."""

STEPS: list[Step] = [step_batches]

SWEEPS: list[Step] = [Sweeping()]
"""What takes as long as the storage is large: it has a thread of its own."""
