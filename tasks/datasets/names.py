"""What a dataset, and a table of PostgreSQL, may be called."""

import re

TABLE = r"(?:[A-Za-z_][A-Za-z0-9_]{0,49}\.)?[A-Za-z_][A-Za-z0-9_]{0,49}"
"""`table` or `schema.table`. PostgreSQL cuts names at 63 bytes, and "_ingestions" and "_doc_id_idx" come behind."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def is_dataset_name(text: str) -> bool:
    """Whether a dataset may be called so: 1 to 128 letters, digits, "_", "-" and "."."""
    return _NAME.fullmatch(text) is not None
