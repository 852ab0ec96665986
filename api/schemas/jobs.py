"""Jobs: what a caller has begun, of whatever kind."""

from typing import Annotated, TypeAlias

from pydantic import Field

from api.schemas.batches import Batch
from api.schemas.ingestions import Ingestion
from api.schemas.tasks import Task

Job: TypeAlias = Annotated[Task | Batch | Ingestion, Field(discriminator="object")]
"""The object itself. All have `id`, `object`, `status`, `created_at`, `counts` and `waiting`."""
