"""Bytes that are too large for Redis: a folder or a bucket, and the formats of what is in it."""
