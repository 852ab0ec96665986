"""Ingestions: from a list of documents to vectors in a sink, a page of documents at a time."""
