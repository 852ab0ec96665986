"""An ingestion as the server describes it, and what is said of its documents and its output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Ingestion:
    """State of an ingestion at one moment.

    Attributes:
        status: `queued`, `in_progress`, `finalizing`, `completed`, `failed`, `cancelling` or `cancelled`.
        total: documents known so far; all of them once `listing_complete`.
        done: of those, how many have ended in any way.
        unchanged: of those, how many were there already.
        cancelled: of those, how many were left when it was cancelled.
        chunks: cut so far; `embedded` of them have their vectors.
        chunks_per_s: embedded in a second, lately; 0 while that is unknown.
        eta_s: seconds to the end as the server estimates it; None while it cannot.
        error: why it failed as a whole: (code, message).
        raw: the whole JSON object of the server.
    """

    id: str
    status: str
    total: int
    done: int
    failed: int
    unchanged: int
    cancelled: int
    chunks: int
    embedded: int
    tokens: int
    listing_complete: bool
    eta_s: float | None
    error: tuple[str, str] | None
    chunks_per_s: float = 0.0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ENDED

    @property
    def resumable(self) -> bool:
        """Whether it has failed and `retry` goes on where it was."""
        return bool(self.raw.get("resumable"))

    @property
    def succeeded(self) -> bool:
        """Whether every document is in."""
        return self.status == "completed" and not self.failed

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        counts = raw["file_counts"]
        error = raw.get("error")
        return cls(
            id=raw["id"],
            status=raw["status"],
            total=counts["total"],
            done=counts["completed"] + counts["failed"] + counts["cancelled"],
            failed=counts["failed"],
            unchanged=counts["unchanged"],
            cancelled=counts["cancelled"],
            chunks=raw["chunks"]["total"],
            embedded=raw["chunks"]["embedded"],
            tokens=raw["chunks"]["tokens"],
            listing_complete=raw["listing_complete"],
            eta_s=raw.get("eta_s"),
            error=(error["code"], error["message"]) if error else None,
            chunks_per_s=(raw.get("rate") or {}).get("chunks_per_s", 0.0),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class FailedDocument:
    """A document that is not in, and why.

    Attributes:
        code: stable.
        stage: where it failed, as the server says; "" for one that failed on this side.
        file_id: of the upload that it came from; "" if it came from elsewhere.
    """

    id: str
    code: str
    message: str
    stage: str = ""
    file_id: str = ""

    @property
    def through_no_fault_of_its_own(self) -> bool:
        """Whether the same bytes may do better another time."""
        return self.stage in {"embedding", "loading"} or self.code in {"worker_lost", "not_stored", "internal_error"}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        uri, error = str(raw["source_uri"]), raw["last_error"]
        file_id = uri.removeprefix("file:").partition("/")[0] if uri.startswith("file:file-") else ""
        return cls(raw["id"], error["code"], error["message"], raw["stage"] or "", file_id)


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of an output. The same `etag`: the same bytes."""

    name: str
    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One version of a dataset. `dataset_id`: tells it from another one of its name; None when there is no dataset."""

    dataset_id: str | None
    parts: Sequence[Part]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From a list of output.

        Raises:
            KeyError, TypeError, ValueError: it is something else, or a name that leads out of a folder.
        """
        parts = [Part(part["name"], part["bytes"], part["etag"]) for part in raw["data"]]
        if any("/" in part.name or part.name.startswith(".") for part in parts):
            raise ValueError("a part has a name that is none")
        return cls(raw["dataset_id"], parts)
