"""Connections, processes and the outermost layers, before a route sees a request."""
