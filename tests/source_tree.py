"""The project's own source as text."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = ("api", "embedq", "stack", "tasks", "worker_config")


def source_files(*packages: str) -> dict[str, str]:
    """Text of the Python files of these packages, of all of ours when none is given, by path from the checkout."""
    paths = (path for package in packages or PACKAGES for path in (CHECKOUT / package).rglob("*.py"))
    return {str(path.relative_to(CHECKOUT)): path.read_text(encoding="utf-8") for path in sorted(paths)}
