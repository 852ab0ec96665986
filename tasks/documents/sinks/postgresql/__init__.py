"""The PostgreSQL sink: a table of chunks with pgvector, and one of receipts."""
