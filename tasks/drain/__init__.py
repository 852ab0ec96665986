"""The loop of a worker: claim, work, commit, repeat. It knows no kind of work."""
