"""Work that needs no model: jobs of the documents queue, and the steps that move batches on. No Celery, no loop."""
