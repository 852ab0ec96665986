"""Datasets: what ingestions have loaded, searched and listed. One interface (`store.py`), two stores.

A dataset is one SQLite file (`sqlite/`), or tables of PostgreSQL (`postgresql/`). May import the leaves alone. Its
nouns: a document is loaded by an ingestion; its receipt says what the dataset knows of it; a chunk is a slice of its
text with a vector.
"""
