"""A dataset in tables of PostgreSQL with pgvector, for several hosts, and for users with tables of their own."""
