"""The model worker: Celery's side of it, and streams that claim texts, encode them and commit their vectors.

A *stream* is a thread with a *claim*: pieces of tasks from the ledger under one token. *Online first*: between two
forward passes of bulk work a stream serves who waits. A claim that is not finished is *given back*. The documents
worker has the same process and the same claim loop. May import the encoder, the ledger, records, storage and wire.
"""
