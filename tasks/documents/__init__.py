"""Sources, parsing and chunking of documents. No Celery, no event loop."""
