"""Settings: the only reader of the environment. Read once at start, then frozen.

Every name is `EMBEDQ_` plus the field in capitals; a `.env` file in the working directory is read too, and the
environment wins over it. `load_settings` turns a bad value into a `SettingsError` that names the variable, the value
and what is allowed, and warns about `EMBEDQ_*` names it does not know.
"""

import contextlib
import ctypes
import difflib
import logging
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dotenv import dotenv_values
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker_config import setting_types as types
from worker_config.logs import LogFormat, configure_logging
from worker_config.redis_connection import RedisAck, Sentinels, address_of, require_redis_url

PREFIX = "EMBEDQ_"
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

_log = logging.getLogger(__name__)

_OTHERS = re.compile(r"URL|API_KEY|FAKE_\w+|PORT_\d+_(TCP|UDP)(_.*)?|SERVICE_(HOST|PORT(_.*)?)")
"""Names behind the prefix that are no settings: of the client, of the fake encoder, and those that Kubernetes gives the
processes beside a Service `embedq`."""


_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
_NO_SECRETS = ("PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL")


class SettingsError(Exception):
    """The configuration cannot be used. The message names the variable and the fix; processes exit with code 78."""


def _run_dir() -> Path:
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:  # all is read-only: the web tier needs no such folder, and a worker names the setting
        folder = "/tmp"  # noqa: S108 - where nothing can be made
    return Path(folder) / f"embedq-{os.getuid()}"


class Settings(BaseSettings):
    """What can be configured, with defaults and limits. Immutable."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", env_ignore_empty=True, frozen=True, extra="ignore", validate_default=True
    )

    # Where things are
    redis_url: Annotated[str, AfterValidator(require_redis_url)] = "redis://127.0.0.1:6379/0"
    redis_sentinels: types.SentinelUrls = Field(default=(), repr=False)
    """URLs of those who say where the master is. That of `redis_url` then has the login, the database and TLS."""
    redis_service: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,100}$")
    """What they call the master."""
    redis_ack: RedisAck = "local"
    """Who has what a caller was promised, before it is: the master alone, or a replica too."""
    storage_url: types.StorageUrl = Field(default="~/.embedq/storage", min_length=1, max_length=4096)
    datasets: types.Datasets = Field(default="", max_length=4096, repr=False)
    """A folder on a local disk, or a database of PostgreSQL; "": in the storage, where that is a folder."""
    ingest_roots: types.Roots = ()
    """Folders and URL prefixes that ingestion may read."""
    sinks: types.Sinks = Field(default=(), repr=False)
    """Databases that ingestions may name: name and URL, which may hold a password."""
    run_dir: Path = Field(default_factory=_run_dir)
    """Where a worker leaves its ready and alive files for probes."""

    # The model
    model: types.ModelName = Field(default=DEFAULT_MODEL, min_length=1, max_length=512)
    served_name: types.ServedNames = ()
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
    port: types.Port = Field(default=types.PORT, ge=0, le=65535)
    api_processes: int = Field(default=1, ge=1, le=64)
    api_keys: types.ApiKeys = ()
    allow_unauthenticated: bool | None = None
    """Whether everybody may call as long as there is no key; None: only from this machine."""
    cors_origins: types.Origins = ()
    """Origins of web pages whose scripts may call; `*`: all."""
    allowed_hosts: types.Hosts = ()
    """Names by which the web tier may be called where there are no keys; `*`: all."""
    max_connections: int = Field(default=4096, ge=16, le=1_000_000)
    """Of one process of the web tier, at the same time."""

    # Limits of one request
    max_inputs: int = Field(default=2048, ge=1, le=65_536)
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**30)
    max_input_bytes: int = Field(default=2**20, ge=16, le=2**30)
    max_wait_s: float = Field(default=55, gt=0, le=600)

    # Files and jobs of callers
    max_file_bytes: int = Field(default=512 * 2**20, ge=1, le=2**40)
    file_quota_bytes: int = Field(default=50 * 2**30, ge=0)
    max_batch_lines: int = Field(default=50_000, ge=1, le=10_000_000)
    """Also the most texts of all lines together."""
    max_open_jobs: int = Field(default=1000, ge=1, le=1_000_000)
    """Batches of one owner, and as many ingestions."""
    batch_ttl_s: float = Field(default=30 * 86_400, gt=0, le=31_536_000)

    # Documents that are ingested, and datasets that are searched
    ingest_max_document_bytes: int = Field(default=100 * 2**20, ge=1024, le=2**31)
    """Of one file that is a document."""
    parse_timeout_s: float = Field(default=15, gt=0, le=3600)
    parse_memory_bytes: int = Field(default=2**30, ge=2**28, le=2**40)
    search_bytes: int = Field(default=256 * 2**20, ge=0, le=2**40)
    """Of vectors that one process of the web tier keeps of datasets; larger ones are read at each search."""

    # Admission, and how long things live
    max_backlog_s: float = Field(default=30, gt=0, le=86_400)
    max_backlog_bulk_s: float = Field(default=86_400, gt=0, le=31_536_000)
    max_redis_memory_percent: int = Field(default=70, ge=1, le=100)
    result_ttl_s: float = Field(default=3600, gt=0, le=31_536_000)
    lease_s: float = Field(default=15, gt=0, le=600)

    # Logs
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
        if bool(self.redis_sentinels) != bool(self.redis_service):
            raise ValueError(f"{PREFIX}REDIS_SENTINELS and {PREFIX}REDIS_SERVICE are only of use together")
        if self.redis_sentinels and self.redis_url.startswith("unix:"):
            raise ValueError(f"{PREFIX}REDIS_URL must be redis://… or rediss://… where Sentinels name the master")
        if self.max_input_bytes > self.max_body_bytes:
            raise ValueError(f"{PREFIX}MAX_INPUT_BYTES must not exceed {PREFIX}MAX_BODY_BYTES")
        for number, root in enumerate(self.ingest_roots, 1):
            if types.shows(root, self.storage_url):
                raise ValueError(
                    f"entry {number} of {PREFIX}INGEST_ROOTS holds the storage ({PREFIX}STORAGE_URL): "
                    "every caller could read what the others have uploaded. Put one of them elsewhere"
                )
        try:
            types.require_queue_name(self.served_model_name)
        except ValueError as error:
            raise ValueError(f"{PREFIX}SERVED_NAME (or the name it is taken from) {error}") from None
        return self

    @cached_property
    def served_model_name(self) -> str:
        """The canonical name: the first of `EMBEDQ_SERVED_NAME`, else the hub id, else the folder's name."""
        return self.served_name[0] if self.served_name else self.model_name

    @property
    def names_redis(self) -> bool:
        """Whether somebody has said where Redis is."""
        return not self.model_fields_set.isdisjoint({"redis_url", "redis_sentinels"})

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
        """Where Redis is, for people: without a password."""
        if self.redis_sentinels:
            return f"{self.redis_service} of the Sentinels {', '.join(map(address_of, self.redis_sentinels))}"
        return address_of(self.redis_url)

    @property
    def sentinels(self) -> Sentinels | None:
        """Who says where the master is; None: it is where `redis_url` leads."""
        return Sentinels(self.redis_service, self.redis_sentinels) if self.redis_sentinels else None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address that the web tier binds."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def open_without_keys(self) -> bool:
        """Whether everybody may call as long as there is no key."""
        return self.is_loopback if self.allow_unauthenticated is None else self.allow_unauthenticated


def load_settings(log_as: str = "", /, **overrides: Any) -> Settings:
    """The settings from the environment and `.env`; keyword arguments win over both.

    `log_as`: the role that this process begins to be. Its environment is hidden, and its log is set up as the settings
    say, before the first line.

    Raises:
        SettingsError: a value is not usable. The message has one line per variable.
    """
    if log_as:
        hide_environment()
    names = {"": [*os.environ], " in .env": _names_in(Settings.model_config.get("env_file"))}
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        _warn_about_unknown(names)
        raise SettingsError("\n".join(_describe(problem) for problem in error.errors())) from None
    if log_as:
        configure_logging(settings.log_level, settings.log_format, log_as)
    _warn_about_unknown(names)
    return settings


def hide_environment() -> None:
    """Closes /proc/<pid>/environ of this process and its forks to others of the same user, where there is Linux.

    The parser of strangers' documents is such another one. It gets an environment without secrets, and must not find
    them in that of a role. No debugger of this user can be attached either, and no core is written.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextlib.contextmanager
def bare_environment() -> Iterator[None]:
    """For starting what would inherit settings and secrets, needs none, and does not hide its own environment."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({name: before[name] for name in _NO_SECRETS if name in before})
    try:
        yield
    finally:
        os.environ.update(before)


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
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for name, value in {
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }.items():
        os.environ.setdefault(name, value)
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
    secret = field in {"api_keys", "datasets", "redis_sentinels", "redis_url", "sinks", "storage_url"}
    shown = "" if secret else f"={problem['input']!s:.80}"
    return f"{PREFIX}{field.upper()}{shown}: {message}"


def _warn_about_unknown(found: Mapping[str, Collection[str]]) -> None:
    # A warning, not an error: other programs of this prefix may have settings, too.
    settings = {name.upper() for name in Settings.model_fields}
    for where, names in found.items():
        for name in sorted(names):
            own = name.upper().removeprefix(PREFIX)
            if name.upper().startswith(PREFIX) and own not in settings and not _OTHERS.fullmatch(own):
                nearest = difflib.get_close_matches(own, settings, n=1)  # the prefix would make all of them near
                hint = f"; did you mean {PREFIX}{nearest[0]}?" if nearest else ""
                _log.warning("unknown setting %s%s is ignored%s", name, where, hint)


def _names_in(env_file: object) -> Collection[str]:
    if not isinstance(env_file, str) or not Path(env_file).is_file():
        return ()
    try:
        return dotenv_values(env_file, interpolate=False, encoding="utf-8").keys()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{env_file}: byte {error.start + 1} is not UTF-8. Save the file as UTF-8.") from None
    except OSError as error:
        raise SettingsError(f"{env_file}: the file cannot be read: {error.strerror}.") from None
