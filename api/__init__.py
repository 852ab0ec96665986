"""The web tier: HTTP in, ledger operations, HTTP out. It never loads torch."""
