"""Batches: checking a file of requests, and writing down what came of them. They are jobs of one page."""
