"""What the web tier knows of the queue, and how it submits to it."""
