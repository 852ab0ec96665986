"""The Parquet sink: rows, receipts and catalogs of a dataset in the storage."""
