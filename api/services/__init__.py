"""What the routes do, by resource: between HTTP and the ledger. A service takes a `Key` and values, never a request."""
