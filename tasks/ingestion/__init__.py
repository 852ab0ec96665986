"""Jobs, that is ingestions and batches: who moves them on, and the stages of an ingestion.

Nouns: a job has pages of documents; a page goes through stages; `advance` moves jobs, and nobody else does.
"""
