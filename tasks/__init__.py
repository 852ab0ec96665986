"""What workers do: thin Celery entry points over the ledger and the model."""
