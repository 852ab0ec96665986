"""Text to vectors: encoders, micro-batches, vectors. No Celery, no Redis; torch is imported inside functions only."""
