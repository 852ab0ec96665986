"""Models, as OpenAI lists them, with what a worker said of each."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from tasks.ledger import ModelEntry


class Model(BaseModel):
    """A model. What no worker has told yet is null."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "embedq"
    alias_of: str | None = Field(description="The canonical name, where this is another name for that model.")
    dimension: int | None = Field(description="Length of its vectors; null until a worker has loaded it.")
    max_tokens: int | None = Field(description="Longest input in tokens, special ones included.")
    device: str | None
    compute: str | None
    precision: str | None
    prompts: list[str] | None
    query_prompt: str | None = Field(description="The one of prompts that stands before queries.")
    document_prompt: str | None = Field(description="The one of prompts that stands before documents.")
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] | None = Field(
        description="How its vectors are compared, as the model's author has it."
    )
    revision: str | None
    workers: int = Field(description="Live workers that serve it.")
    ready: bool = Field(description="Whether there is one.")

    @classmethod
    def of(cls, name: str, queue: str, entry: ModelEntry | None, *, workers: int, started_at: int) -> Self:
        """The model under one of its names.

        Args:
            name: under which it is shown.
            queue: its canonical name.
            entry: what a worker said of it.
            workers: that beat.
            started_at: of this process; it stands for the time at which a model was made that no worker has loaded yet.
        """
        return cls(
            id=name,
            created=entry.created_at if entry else started_at,
            alias_of=None if name == queue else queue,
            dimension=entry.dimension if entry else None,
            max_tokens=entry.max_tokens if entry else None,
            device=entry.device if entry else None,
            compute=entry.compute if entry else None,
            precision=entry.precision if entry else None,
            prompts=list(entry.prompts) if entry else None,
            query_prompt=entry.query_prompt if entry else None,
            document_prompt=entry.document_prompt if entry else None,
            similarity=entry.similarity if entry else None,
            revision=entry.revision if entry else None,
            workers=workers,
            ready=workers > 0,
        )


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Model]
