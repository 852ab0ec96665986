"""Figures that anybody can make again: speed beside other designs (`bench`), quality (`bench.evaluate`)."""
