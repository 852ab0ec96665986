"""Reading what datasets hold: exact search, pages of documents and chunks. Needs pyarrow; no Redis."""
