"""A leaf package: settings, the Celery app and metrics. It imports nothing else of this project."""
