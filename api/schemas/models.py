"""Models, as OpenAI lists them, with what a worker said of each."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tasks import model as served


class ModelFacts(BaseModel):
    """What a worker said of a model. All is null until one has loaded it."""

    dimension: int | None = Field(description="Length of its vectors.")
    max_tokens: int | None = Field(description="Longest input in tokens, special ones included.")
    device: str | None
    compute: str | None
    precision: str | None

    @classmethod
    def of(cls, model: served.Model | None) -> dict[str, Any]:
        """The facts of this class, as arguments."""
        return {name: getattr(model, name, None) for name in cls.model_fields}


class MoreFacts(ModelFacts):
    """Those that callers choose a model by."""

    prompts: list[str] | None
    query_prompt: str | None = Field(description="The one of prompts that stands before queries.")
    document_prompt: str | None = Field(description="The one of prompts that stands before documents.")
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] | None = Field(
        description="How its vectors are compared, as the model's author has it."
    )
    revision: str | None


class Model(MoreFacts):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "embedq"
    alias_of: str | None = Field(description="The canonical name, where this is another name for that model.")
    workers: int = Field(description="Live workers that serve it.")
    ready: bool = Field(description="Whether there is one.")


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]
