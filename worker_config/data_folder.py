"""What a command finds in the data folder of a local stack: `embedq keys create`, `embedq storage`."""

from pathlib import Path

from worker_config.settings import Settings, SettingsError, load_settings

DEFAULT = Path(".embedq")
ADDRESS = "redis-url"
"""The address of the stack's Redis, which may hold a password. Only the user of the stack may read it."""
STORAGE = "storage"
"""Where the stack stores, unless `EMBEDQ_STORAGE_URL` is set."""


def operator_settings(data: Path | None) -> Settings:
    """The settings of the service that an operator means.

    `data`: the data folder of its local stack. None: the environment says which service it is, or else the stack that
    has its data here.

    Raises:
        SettingsError: nothing says where its Redis is, or a setting is wrong.
    """
    settings = load_settings()
    if data is None and settings.names_redis:
        return settings
    folder = data or DEFAULT
    overrides = {"redis_url": _address_in(folder)}
    if "storage_url" not in settings.model_fields_set:
        overrides["storage_url"] = str((folder / STORAGE).resolve())
    return load_settings(**overrides)


def _address_in(folder: Path) -> str:
    file = folder / ADDRESS
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        raise SettingsError(
            "No Redis is named: set EMBEDQ_REDIS_URL as the roles have it, or name the data folder of a running "
            f"`embedq up` (--data; {file} is not there)."
        ) from None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}. It is for the user of `embedq up`.") from None
