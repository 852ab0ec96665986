"""Ingestions: listing a source page by page, cutting its documents into chunks, loading them once they are vectors."""
