"""The encoder of a model worker: what a model says of itself, and what it makes of texts."""
