"""OpenAI's shapes, which the web tier and batches both speak."""
