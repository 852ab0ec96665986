"""A running server, as the scenarios see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PRODUCT = "embedq"
PEER = "peer"
BARE = "bare"


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is and what may be asked of it.

    Attributes:
        name: `embedq`, a design of `bench.baselines`, or `peer`.
        base_url: OpenAI's, `http://host:port/v1`.
        model: the name to send.
        health_url: something cheap that says that the process lives; None: unknown.
        pids: process ids by role; empty when the processes are not ours.
        start_s: from the start of the first process to the first answer that needs the model; None: it ran already.
    """

    name: str
    base_url: str
    model: str
    health_url: str | None = None
    pids: Mapping[str, int] = field(default_factory=dict)
    start_s: float | None = None

    @property
    def embeddings_url(self) -> str:
        """Where texts become vectors while the caller waits."""
        return f"{self.base_url}/embeddings"

    @property
    def tasks_url(self) -> str:
        """Where texts are handed over; embedq alone has it."""
        return f"{self.base_url}/tasks"

    @property
    def is_product(self) -> bool:
        """Whether it speaks the native API."""
        return self.name == PRODUCT
