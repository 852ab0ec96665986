"""Bytes of a file -> text with its structure, in a process of its own, whose death harms one document alone."""
