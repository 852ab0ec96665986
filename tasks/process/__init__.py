"""A Celery parent and its one child: start, stop, liveness. No work of any kind."""
