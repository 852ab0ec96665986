"""Other records in Redis than tasks, each with its operations: files, batches, ingestions, datasets."""
