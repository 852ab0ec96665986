"""Which model is measured, and how it computes: what the environment and `.env` say, handed on to every process."""

from typing import Any

from worker_config.settings import Settings

_LOADING = {"model", "served_name", "trust_remote_code"}
_COMPUTING = {"device", "compute", "precision", "threads"}


def chosen(settings: Settings) -> dict[str, Any]:
    """The settings of the model that somebody has set; the rest keep their defaults."""
    return settings.model_dump(include=(_LOADING | _COMPUTING) & settings.model_fields_set, exclude_none=True)
