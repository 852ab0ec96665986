"""Writing an answer: errors, vectors, content, headers."""
