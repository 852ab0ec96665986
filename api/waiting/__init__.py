"""Requests that wait for a task."""
