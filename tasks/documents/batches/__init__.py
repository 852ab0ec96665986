"""Batches: checking a file of requests, moving it through its stages, and writing down what came of it."""
