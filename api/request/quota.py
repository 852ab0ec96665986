"""The quota of a caller."""

from tasks.records.api_keys import Limits
from tasks.records.files import Quota
from worker_config.settings import Settings


def quota(settings: Settings, limits: Limits) -> Quota:
    """Of the caller whose key has these limits."""
    own = limits.stored_bytes
    return Quota(settings.file_quota_bytes if own is None else own, settings.file_quota_number)
