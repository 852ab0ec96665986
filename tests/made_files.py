"""Records of files as an upload leaves them."""

import time
from typing import Any

from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.files import FileRecord, Purpose, created_ms, new_file_id, stored_name

HOUR_MS = 3_600_000


def made_file(size_bytes: int, **changed: Any) -> FileRecord:
    """One of `anonymous` that was made now, and lives for a day."""
    file_id = changed.pop("id", None) or new_file_id()
    values: dict[str, Any] = {
        "id": file_id,
        "owner": ANONYMOUS,
        "filename": "in.jsonl",
        "purpose": Purpose.USER_DATA,
        "size_bytes": size_bytes,
        "created_ms": created_ms(file_id),
        "expires_ms": int(time.time() * 1000) + 24 * HOUR_MS,
        "stored": stored_name(changed.get("owner", ANONYMOUS), file_id),
    }
    return FileRecord(**(values | changed))
