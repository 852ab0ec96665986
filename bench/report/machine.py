"""What the figures were measured on: the header above the table."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from stack.redis_server import find_server

_PACKAGES = ("torch", "openvino", "sentence-transformers", "fastapi", "celery", "redis", "uvicorn")


def describe() -> Mapping[str, Any]:
    """Date, machine and versions, by name."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores usable, {_memory_gib()} GiB",
        "load average before": load,
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name))),
        "redis": _redis(),
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(int(psutil.virtual_memory().total) / 2**30)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _redis() -> str:
    shown = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=False).stdout
    return " ".join(shown.split()[:3])


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"
