"""What is wrong with each line of a batch's file, and the rows of good lines with their costs. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict

from tasks import lines
from tasks.batches.line_rows import LineError, refused_row, rows_of_line
from tasks.errors import RequestError
from tasks.item import cost
from tasks.ledger.overview import Queue, find_queue
from tasks.records.batches import ENDPOINT
from tasks.records.jobs import JobError
from tasks.wire.embeddings_body import EmbeddingsBody, ModelName, check_options, read_body
from tasks.wire.json_limits import MAX_PARTS, has_more_parts
from tasks.wire.token_input import texts_of_tokens
from tasks.wire.validation import validated
from worker_config.settings import Settings

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileLine:
    """One line that is not blank.

    Attributes:
        number: counts from 1, blank lines too, as an editor does.
        data: its bytes without the line break; None: it is longer than allowed.
    """

    number: int
    data: bytes | None = field(repr=False)


def split_lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[FileLine]:
    """The lines of a file that are not blank. At most about `max_line_bytes` of a line are kept."""
    # Room for what does not count: a mark at the beginning, and the "\r" of a line break.
    for number, line in enumerate(lines.split_lines(chunks, b"\n", max_line_bytes + len(_BOM) + 1), 1):
        if line.data is None:
            yield FileLine(number, None)
            continue
        data = (line.data.removeprefix(_BOM) if number == 1 else line.data).removesuffix(b"\r")
        if data.strip():
            yield FileLine(number, data if len(data) <= max_line_bytes else None)


def ids_of(lines: Iterable[FileLine]) -> set[bytes]:
    """Digests of the custom ids of an error file."""
    return {digest for line in lines if (digest := _id_of(line)) is not None}


def with_ids(lines: Iterable[FileLine], ids: Collection[bytes]) -> Iterator[FileLine]:
    """Those lines of a file that was checked before whose custom ids have these digests."""
    return (line for line in lines if _id_of(line) in ids)


def _id_of(line: FileLine) -> bytes | None:
    try:
        request = orjson.loads(line.data or b"")
    except orjson.JSONDecodeError:
        return None
    custom_id = request.get("custom_id") if isinstance(request, dict) else None
    return _digest(custom_id) if isinstance(custom_id, str) else None


def _digest(custom_id: str) -> bytes:
    """Ids may be long, and there may be many."""
    return hashlib.blake2b(custom_id.encode(), digest_size=16).digest()


class _Model(BaseModel):
    """What a line must name, unlike other bodies: the file is of one model."""

    model_config = ConfigDict(strict=True)

    model: ModelName


MAX_FAULTS = 1000
_REQUIRED = ("custom_id", "method", "url", "body")
_URLS = frozenset({ENDPOINT, ENDPOINT.removeprefix("/v1")})
"""As the routes take them: with and without `/v1`, whatever slashes stand around."""
_DIVIDE = "Divide its texts over several lines."


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of one file, and of the pieces into which it is cut."""

    max_lines: int
    max_inputs: int
    max_line_bytes: int
    max_line_inputs: int
    max_input_bytes: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """A line may have what a body of the API may have."""
        return cls(
            max_lines=settings.max_batch_lines,
            max_inputs=settings.max_batch_lines,
            max_line_bytes=settings.max_body_bytes,
            max_line_inputs=settings.max_inputs,
            max_input_bytes=settings.max_input_bytes,
        )


@dataclass(frozen=True, slots=True)
class KnownModels:
    """The models that a line may name.

    Attributes:
        own: names of the configured one, the canonical one first: known before any worker has loaded it.
        overviews: state of the models in the ledger, by served name.
    """

    own: Sequence[str]
    overviews: Mapping[str, Queue]


@dataclass(slots=True)
class FileCheck:
    """State of the check of one file. `add` every line, then `finish`.

    Attributes:
        faults: what is wrong, at most `MAX_FAULTS`.
        lines: taken so far.
    """

    models: KnownModels
    limits: FileLimits
    faults: list[JobError] = field(default_factory=list)
    lines: int = 0
    _inputs: int = 0
    _ids: dict[bytes, int] = field(default_factory=dict)
    _names: dict[str, Queue] = field(default_factory=dict)
    """By the name of the model in a line, so that each name is looked up once."""
    _served: Queue | None = None

    @property
    def model(self) -> str | None:
        """Canonical name of the first model that a line names; None: no line has named one."""
        return self._served.name if self._served else None

    @property
    def piece_cost(self) -> int:
        """Estimated tokens that one piece of rows may hold."""
        return self._served.piece_cost if self._served else 1

    @property
    def full(self) -> bool:
        """Whether the check can end, because the file has too many lines, texts or faults."""
        too_many = self.lines > self.limits.max_lines or self._inputs > self.limits.max_inputs
        return too_many or len(self.faults) >= MAX_FAULTS

    def add(self, line: FileLine) -> list[tuple[bytes, int]]:
        """Takes the next line. Returns its rows for the batch's copy of the file, without line breaks, and their costs.

        A line at fault has none. A body that the endpoint would refuse is not a fault: its row is the refusal.
        """
        self.lines += 1
        if line.data is None:
            message = f"This line has more than {self.limits.max_line_bytes:,} bytes (EMBEDQ_MAX_BODY_BYTES). {_DIVIDE}"
            self._fault(JobError("line_too_large", message), line)
            return []
        if has_more_parts(line.data):
            message = f"This line has more than {MAX_PARTS:,} lists, objects and fields. {_DIVIDE}"
            self._fault(JobError("line_too_large", message), line)
            return []
        try:
            request = orjson.loads(line.data)
        except orjson.JSONDecodeError:
            why = lines.encoding_fault(line.data) or "This line is not parseable as valid JSON."
            self._fault(JobError("invalid_json_line", why), line)
            return []
        faults = list(self._line_faults(request, line))
        for fault in faults:
            self._fault(fault, line)
        return [] if faults else self._taken(request["custom_id"], request["body"], len(line.data))

    def finish(self) -> None:
        """Checks the file as a whole, after its last line."""
        if self.lines > self.limits.max_lines:
            self._whole(
                "too_many_tasks", f"A batch takes {self.limits.max_lines:,} lines; this file has more. Split it."
            )
        if self._inputs > self.limits.max_inputs:
            self._whole(
                "too_many_inputs", f"A batch takes {self.limits.max_inputs:,} texts; this file has more. Split it."
            )
        if self.lines == 0:
            self._whole("empty_file", "The file has no requests. Upload one with lines.")

    def _taken(self, custom_id: str, body: dict[str, Any], size_bytes: int) -> list[tuple[bytes, int]]:
        served = self._served
        assert served is not None  # noqa: S101 - a line without a model that is served is at fault
        try:
            read = self._read(body, size_bytes, served)
        except RequestError as error:
            return [(refused_row(custom_id, LineError(error.code, error.detail, error.status, error.param)), 1)]
        self._inputs += len(read.input)
        costs = [cost(text, served.max_tokens) for text in read.input]
        return list(zip(rows_of_line(custom_id, read), costs, strict=True))

    def _read(self, body: dict[str, Any], size_bytes: int, served: Queue) -> EmbeddingsBody:
        """The checked body; raises the `RequestError` that the endpoint would answer."""
        limits = self.limits
        parsed = read_body(
            EmbeddingsBody,
            body,
            max_inputs=limits.max_line_inputs,
            max_input_bytes=limits.max_input_bytes if size_bytes > limits.max_input_bytes else None,
            decode=self._decode,
        )
        check_options(parsed.options(served.model), served.name, served.model)
        return parsed

    def _decode(self, numbers: Sequence[object]) -> list[str]:
        limits = self.limits
        return texts_of_tokens(numbers, max_input_bytes=limits.max_input_bytes, max_total_bytes=limits.max_line_bytes)

    def _fault(self, fault: JobError, line: FileLine) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(JobError(fault.code, fault.message, fault.param, line.number))

    def _whole(self, code: str, message: str) -> None:
        self.faults.insert(0, JobError(code, message))
        del self.faults[MAX_FAULTS:]

    def _line_faults(self, request: Any, line: FileLine) -> Iterator[JobError]:
        if not isinstance(request, dict):
            yield JobError("invalid_request", "Each line must be a JSON object.")
            return
        for name in _REQUIRED:
            if request.get(name) is None:
                yield JobError("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
        yield from self._custom_id(request.get("custom_id"), line)
        if request.get("method") not in (None, "POST"):
            yield JobError("invalid_method", "The method must be 'POST'.", "method")
        url = request.get("url")
        if url is not None and not (isinstance(url, str) and "/" + url.strip("/") in _URLS):
            message = f"The URL provided for this request does not match the batch endpoint. Send {ENDPOINT!r}."
            yield JobError("invalid_url", message, "url")
        body = request.get("body")
        if isinstance(body, dict):
            yield from self._model(body)
        elif body is not None:
            yield JobError("invalid_type", "body must be a JSON object.", "body")

    def _custom_id(self, custom_id: object, line: FileLine) -> Iterator[JobError]:
        if custom_id is None:
            return
        if not isinstance(custom_id, str):
            yield JobError("invalid_request", "custom_id must be a string.", "custom_id")
            return
        earlier = self._ids.setdefault(_digest(custom_id), line.number)
        if earlier != line.number:
            message = f"The custom_id of this request is that of line {earlier} too; it must be unique in the batch."
            yield JobError("duplicate_custom_id", message, "custom_id")

    def _model(self, body: dict[str, Any]) -> Iterator[JobError]:
        try:
            name = validated(_Model, body).model
            served = self._names.get(name) or find_queue(name, self.models.own, self.models.overviews)
        except RequestError as error:
            yield JobError(error.code, error.detail, "body.model")
            return
        self._names[name] = served
        if self._other_model(served):
            message = (
                "All requests of a batch must name the same model; an earlier line names another one. "
                "Send a file for each."
            )
            yield JobError("mismatched_model", message, "body.model")

    def _other_model(self, served: Queue) -> bool:
        if self._served is None:
            self._served = served
        return self._served.name != served.name
