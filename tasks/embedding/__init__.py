"""The model worker: claims of texts and rows become vectors."""
