"""Cuts a text into chunks, measured in the model's own tokens.

Nouns: a *block* is what Markdown calls one (`parsing/markdown.py`); a *piece* is what chunks are made of, a sentence or
a row; a *chunk* has as many of them as the limit allows. Chunks of a table or of code that was cut have its *frame*.
"""
