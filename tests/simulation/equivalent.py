"""Mutants that change nothing that anybody could see, by name, and why."""

EQUIVALENT: dict[str, str] = {}
