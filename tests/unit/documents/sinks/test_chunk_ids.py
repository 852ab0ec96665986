"""Ids of chunks: users and tables know them as UUIDs."""

import hashlib
from uuid import UUID

from tasks.documents.sinks.sink import chunk_id

FINGERPRINT = "ab" * 32


def test_the_id_of_a_chunk_is_a_uuid_of_version_5_made_of_its_place() -> None:
    for index in range(500):
        digest = hashlib.sha256(f"{FINGERPRINT}\0{index}\0{index % 7}".encode()).digest()

        assert chunk_id(str(index % 7), FINGERPRINT, index) == str(UUID(bytes=digest[:16], version=5))
