"""A Celery parent and its one child: start, stop, who hangs, heartbeat. No work of any kind."""
