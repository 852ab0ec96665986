"""Settings: the only reader of the environment. Read once at start, then frozen.

Every name is `EMBEDQ_` plus the field in capitals; a `.env` file in the working directory is read too, and the
environment wins over it. `load_settings` turns a bad value into a `SettingsError` that names the variable, the value
and what is allowed, and warns about `EMBEDQ_*` names it does not know.
"""

import difflib
import logging
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from worker_config import forms
from worker_config.logs import LogFormat, configure_logging
from worker_config.redis_connection import RedisAck, RedisUrl

PREFIX = "EMBEDQ_"
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
CONFIGURATION_EXIT_CODE = 78
"""EX_CONFIG of sysexits.h: restarting cannot help, a person has to change something."""
OVERDUE_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: a worker did not stop in time and ended itself."""

_log = logging.getLogger(__name__)


_PORT = 8000
_PLATFORMS = re.compile(r"PORT_\d+_(TCP|UDP)(_.*)?|SERVICE_(HOST|PORT(_.*)?)")
"""Names that Kubernetes gives the processes beside a Service `embedq`, behind the prefix."""


def _run_dir() -> Path:
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:  # all is read-only: the web tier needs no such folder, and a worker names the setting
        folder = "/tmp"  # noqa: S108 - where nothing can be made
    return Path(folder) / f"embedq-{os.getuid()}"


def _own_port(value: Any) -> Any:
    # Kubernetes and Docker's links set EMBEDQ_PORT=tcp://10.0.0.1:8000 where another Service is called embedq.
    return _PORT if isinstance(value, str) and value.startswith(("tcp://", "udp://")) else value


class SettingsError(Exception):
    """The configuration cannot be used. The message names the variable and the fix; processes exit with code 78."""


class Settings(BaseSettings):
    """What can be configured, with defaults and limits. Immutable."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", env_ignore_empty=True, frozen=True, extra="ignore", validate_default=True
    )

    # Where things are
    redis_url: Annotated[str, AfterValidator(forms.redis_url)] = "redis://127.0.0.1:6379/0"
    redis_ack: RedisAck = "local"
    """Who has what a caller was promised, before it is: the master alone, or a replica too."""
    storage_url: Annotated[str, AfterValidator(forms.storage_url)] = Field(
        default="~/.embedq/storage", min_length=1, max_length=4096
    )
    datasets: Annotated[str, AfterValidator(forms.datasets)] = Field(default="", max_length=4096, repr=False)
    """A folder on a local disk, or a database of PostgreSQL; "": in the storage, where that is a folder."""
    ingest_roots: Annotated[tuple[str, ...], NoDecode, BeforeValidator(forms.roots)] = ()
    """Folders and URL prefixes that ingestion may read."""
    sinks: Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(forms.sinks)] = Field(
        default=(), repr=False
    )
    """Databases that ingestions may name: name and URL, which may hold a password."""
    run_dir: Path = Field(default_factory=_run_dir)
    """Where a worker leaves its ready and alive files for probes."""

    # The model
    model: Annotated[str, AfterValidator(forms.model)] = Field(default=DEFAULT_MODEL, min_length=1, max_length=512)
    served_name: Annotated[tuple[str, ...], NoDecode, BeforeValidator(forms.served_names)] = ()
    """Names under which clients know the model; the first is canonical, and the name of the queue."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda|cuda:\d+)$")
    compute: Literal["auto", "torch", "openvino", "fake"] = "auto"
    """`fake` computes deterministic vectors without a model: for tests and load trials, never for search."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int | None = Field(default=None, ge=1, le=1024)
    streams: int | None = Field(default=None, ge=1, le=64)
    """Claims that a worker works on at the same time; None: what suits the device (tasks/encoder/load.py)."""
    trust_remote_code: bool = False

    # Who may call
    host: str = "127.0.0.1"
    port: Annotated[int, BeforeValidator(_own_port)] = Field(default=_PORT, ge=0, le=65535)
    api_processes: int = Field(default=1, ge=1, le=64)
    api_keys: Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(forms.api_keys)] = ()
    admin_keys: Annotated[tuple[str, ...], NoDecode, BeforeValidator(forms.listed)] = ()
    """Names among `api_keys` that may manage keys."""
    require_key: bool = False
    """A key is needed although `api_keys` has none: those of the ledger."""
    allow_unauthenticated: bool = False
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(forms.origins)] = ()
    """Origins of web pages whose scripts may call; `*`: all."""

    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(forms.hosts)] = ()
    """Names by which the web tier may be called where there are no keys; `*`: all."""
    max_connections: int = Field(default=4096, ge=16, le=1_000_000)
    """Of one process of the web tier, at the same time."""

    # Limits of one request
    max_inputs: int = Field(default=2048, ge=1, le=65_536)
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**30)
    max_input_bytes: int = Field(default=2**20, ge=16, le=2**30)
    max_wait_s: float = Field(default=55, gt=0, le=600)

    # Files of callers
    max_file_bytes: int = Field(default=512 * 2**20, ge=1, le=2**40)
    max_batch_file_bytes: int = Field(default=200 * 2**20, ge=1, le=2**40)
    file_quota_bytes: int = Field(default=50 * 2**30, ge=0)

    # Batches
    max_batch_lines: int = Field(default=50_000, ge=1, le=10_000_000)
    max_batch_inputs: int = Field(default=50_000, ge=1, le=10_000_000)
    max_open_batches: int = Field(default=1000, ge=1, le=1_000_000)
    """Of one owner."""
    batch_ttl_s: float = Field(default=30 * 86_400, gt=0, le=31_536_000)

    # Documents that are ingested
    max_open_ingestions: int = Field(default=100, ge=1, le=1_000_000)
    """Of one owner."""
    ingest_max_document_bytes: int = Field(default=100 * 2**20, ge=1024, le=2**31)
    """Of one file that is a document."""
    ingest_max_record_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**28)
    """Of one line or row of a file of records; some hundred bytes of memory are needed for each of them at worst."""
    parse_timeout_s: float = Field(default=15, gt=0, le=3600)
    parse_memory_bytes: int = Field(default=2**30, ge=2**28, le=2**40)

    # Datasets that are searched
    search_bytes: int = Field(default=256 * 2**20, ge=0, le=2**40)
    """Of vectors that one process of the web tier keeps of datasets; larger ones are read at each search."""

    # Admission
    max_backlog_s: float = Field(default=30, gt=0, le=86_400)
    max_backlog_bulk_s: float = Field(default=86_400, gt=0, le=31_536_000)
    max_redis_memory_percent: int = Field(default=70, ge=1, le=100)

    # How long things live
    result_ttl_s: float = Field(default=3600, gt=0, le=31_536_000)

    # The worker's rhythm
    lease_s: float = Field(default=15, gt=0, le=600)

    # The fake encoder (compute=fake)
    fake_dimension: int = Field(default=384, ge=1, le=16_384)
    fake_max_tokens: int = Field(default=256, ge=8)
    fake_load_s: float = Field(default=0, ge=0, le=600)
    fake_tokens_per_s: float = Field(default=0, ge=0)
    """0 = as fast as it goes; otherwise each forward pass takes padded tokens / this."""

    # Metrics and logs
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: LogFormat = "text"
    access_log: bool = False

    @model_validator(mode="before")
    @classmethod
    def _stripped(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        # A line of YAML or of a file of secrets leaves blanks and newlines, which libraries read in different ways.
        return {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_input_bytes > self.max_body_bytes:
            raise ValueError(f"{PREFIX}MAX_INPUT_BYTES must not exceed {PREFIX}MAX_BODY_BYTES")
        for name in self.admin_keys:
            if name not in dict(self.api_keys):
                raise ValueError(f"{PREFIX}ADMIN_KEYS names {name!r:.80}, which is none of {PREFIX}API_KEYS")
        for number, root in enumerate(self.ingest_roots, 1):
            if forms.shows(root, self.storage_url):
                raise ValueError(
                    f"entry {number} of {PREFIX}INGEST_ROOTS holds the storage ({PREFIX}STORAGE_URL): "
                    "every caller could read what the others have uploaded. Put one of them elsewhere"
                )
        try:
            forms.queue_name(self.served_model_name)
        except ValueError as error:
            raise ValueError(f"{PREFIX}SERVED_NAME (or the name it is taken from) {error}") from None
        if any(name.startswith("@") for name in self.served_names):  # names of queues that are no models
            raise ValueError(f"{PREFIX}SERVED_NAME must not begin with @")
        return self

    @cached_property
    def served_model_name(self) -> str:
        """The canonical name: the first of `EMBEDQ_SERVED_NAME`, else the hub id, else the folder's name."""
        if self.served_name:
            return self.served_name[0]
        return self.model_name

    @property
    def model_name(self) -> str:
        """The hub id without its revision, or the folder's name."""
        path = Path(self.model)
        if path.is_dir() or path.is_absolute():
            return Path(os.path.abspath(path)).name  # noqa: PTH100 - `resolve` would give the name behind a link
        return self.model.partition("@")[0]

    @property
    def served_names(self) -> tuple[str, ...]:
        """All names that clients may use for the model, the canonical one first."""
        return self.served_name or (self.served_model_name,)

    @property
    def redis_address(self) -> str:
        """Where Redis is, for people: `redis_url` without its password."""
        return RedisUrl.parse(self.redis_url).address

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address that the web tier binds."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def require_safe_bind(self) -> None:
        """Refuses a public address without keys.

        Raises:
            SettingsError: the host is not loopback, no API key is needed and nobody said that this is fine.
        """
        if self.api_keys or self.require_key or self.allow_unauthenticated or self.is_loopback:
            return
        raise SettingsError(
            f"{PREFIX}HOST={self.host} is reachable from other machines and no API key is set. "
            f"Set {PREFIX}REQUIRE_KEY=true and make keys with `embedq keys create`, or set "
            f"{PREFIX}API_KEYS=name:sha256, or {PREFIX}ALLOW_UNAUTHENTICATED=true if something in front "
            f"checks callers, or bind 127.0.0.1."
        )


def load_settings(log_as: str = "", /, **overrides: Any) -> Settings:
    """The settings from the environment and `.env`; keyword arguments win over both.

    `log_as`: the role of this process. Its log is set up as the settings say, before the first line.

    Raises:
        SettingsError: a value is not usable. The message has one line per variable.
    """
    _require_readable(Settings.model_config.get("env_file"))
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        _warn_about_unknown()
        raise SettingsError("\n".join(_describe(problem) for problem in error.errors())) from None
    if log_as:
        configure_logging(settings.log_level, settings.log_format, log_as)
    _warn_about_unknown()
    return settings


def child_environment(**settings: object) -> dict[str, str]:
    """This process's environment with some settings replaced, for starting another role.

    Keys are field names (`redis_url`), values their new values; None leaves a setting alone. Threads share two malloc
    arenas, where the C library has them: one of its own for each would keep what it has freed, 50 MB of a worker.
    """
    changed = {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    return {"MALLOC_ARENA_MAX": "2", **os.environ, **changed}


def set_library_defaults(threads: int | None) -> None:
    """Sets what numeric libraries read from the environment when they are first imported.

    Call before torch is imported. TOKENIZERS_PARALLELISM=true deadlocks after a fork; OMP_NUM_THREADS keeps several
    workers on one machine from fighting for the same cores; passive waiting keeps OpenMP threads from spinning away the
    cores that the API and Redis need (one query on two busy cores: 24 ms instead of 105 ms); the CUDA check through
    NVML does not start CUDA in a process that may still fork.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)


def forget_celery_variables() -> None:
    """Takes the variables of another application's Celery out of this process: they would win over the app's own."""
    for name in [name for name in os.environ if name.startswith("CELERY_")]:
        del os.environ[name]


def names_collector() -> bool:
    """Whether somebody has told OpenTelemetry where spans go, by its own variables."""
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") for name in ("ENDPOINT", "TRACES_ENDPOINT"))


def _describe(problem: Mapping[str, Any]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    field = str(problem["loc"][0])
    secret = field in {"api_keys", "datasets", "redis_url", "sinks", "storage_url"}
    shown = "" if secret else f"={problem['input']!s:.80}"
    return f"{PREFIX}{field.upper()}{shown}: {message}"


def _warn_about_unknown() -> None:
    # A warning, not an error: other programs of this prefix may have settings, too.
    settings = {name.upper() for name in Settings.model_fields} | {"URL", "API_KEY"}
    file = Settings.model_config.get("env_file")
    for where, names in (("", os.environ), (f" in {file}", _names_in(file))):
        for name in sorted(names):
            own = name.upper().removeprefix(PREFIX)
            if name.upper().startswith(PREFIX) and own not in settings and not _PLATFORMS.fullmatch(own):
                nearest = difflib.get_close_matches(own, settings, n=1)  # the prefix would make all of them near
                hint = f"; did you mean {PREFIX}{nearest[0]}?" if nearest else ""
                _log.warning("unknown setting %s%s is ignored%s", name, where, hint)


def _require_readable(env_file: object) -> None:
    try:
        _names_in(env_file)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{env_file}: byte {error.start + 1} is not UTF-8. Save the file as UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"{env_file}: the file cannot be read: {error.strerror}.") from None


def _names_in(env_file: object) -> Collection[str]:
    if not isinstance(env_file, str) or not Path(env_file).is_file():
        return ()
    return dotenv_values(env_file, interpolate=False, encoding="utf-8").keys()
