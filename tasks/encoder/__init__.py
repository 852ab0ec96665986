"""The encoder: texts in, vectors out. It knows neither Celery nor Redis, and imports no other room.

Its nouns are `Text`, `Tokens`, `MicroBatch` and `Vector`; `load.py` makes an `Encoder` and `encode.py` uses it.
"""
