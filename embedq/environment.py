"""The environment of the client: address and key of the server, path of Python."""

import os
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8000"


def server_url() -> str:
    """`EMBEDQ_URL`, else the local server."""
    return os.environ.get("EMBEDQ_URL", "").strip() or DEFAULT_URL


def api_key() -> str | None:
    """`EMBEDQ_API_KEY`, or None. There is no option for it: every user of a machine can see arguments."""
    return os.environ.get("EMBEDQ_API_KEY") or None


def with_python_path(folder: Path) -> dict[str, str]:
    """This process's environment with `folder` first among the places that Python imports from."""
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *([inherited] if inherited else [])])}
