"""Bytes of a file -> text with its structure, in a process that may die without taking anything else along."""
