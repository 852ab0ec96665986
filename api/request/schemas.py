"""Bodies of the API's other calls with texts. That of `/v1/embeddings` is in `tasks.wire`: batches read it too."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema

from tasks.wire.embeddings_body import TRUNCATE, EmbeddingFields, ForeignTruncate, Texts
from tasks.wire.validation import MAX_METADATA_PAIRS

MAX_DEADLINE_S = 31 * 86_400
_EXAMPLE: JsonDict = {"input": ["The cat sat on the mat.", "Ein Satz."], "normalize": True, "metadata": {"job": "42"}}

MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class TaskBody(EmbeddingFields):
    """Body of `POST /v1/tasks`. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    lane: Literal["online", "bulk"] = Field("online", description="bulk gives way to online work.")
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        None, max_length=MAX_METADATA_PAIRS, description="Kept with the task."
    )
    deadline_s: float | None = Field(
        None, gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False, description="Seconds after which an open task expires."
    )


class EmbedBody(EmbeddingFields):
    """Body of `POST /embed`, text-embeddings-inference's call. Unknown fields are ignored."""

    model_config = ConfigDict(populate_by_name=True, json_schema_extra={"examples": [{"inputs": ["The cat sat."]}]})

    input: Texts = Field(alias="inputs")
    truncate: ForeignTruncate = Field(True, description=TRUNCATE)
    model: SkipJsonSchema[None] = None  # always the server's own
    truncation_direction: str = Field(
        "right",
        description="The side to cut at; only right is possible, in any case of letters.",
        json_schema_extra={"pattern": "^[Rr][Ii][Gg][Hh][Tt]$"},
    )
