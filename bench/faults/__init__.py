"""Fault trials: real processes under a steady load, one fault after the other, and what became of every text."""
