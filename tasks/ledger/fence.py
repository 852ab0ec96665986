"""Names that no two attempts share."""

import hashlib

_HEX_CHARS = 16


def fence(token: str) -> str:
    """16 hexadecimal digits of a claim's token: part of the name of whatever that claim writes into the storage.

    A worker that has lost its claim without knowing can leave garbage, and never replace what another one wrote.
    """
    return hashlib.sha256(token.encode()).hexdigest()[:_HEX_CHARS]
