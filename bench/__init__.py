"""Figures that anybody can make again: speed against the usual designs (`python -m bench`), quality (`bench.evaluate`)."""
