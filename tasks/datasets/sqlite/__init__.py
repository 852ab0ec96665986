"""A dataset as one SQLite file, changed in place by one writer at a time."""
