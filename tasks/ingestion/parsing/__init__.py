"""Turns the bytes of a document into text. All that is foreign is read in one sandbox, a process of its own.

Nouns: a *format* (`formats.py`) says how its files are recognised and which function reads them; `Extracted` is what
that function returns; a *warning* says what could not be read of a document, a *refusal* why nothing was.
"""
