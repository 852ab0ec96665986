"""The error of the local stack."""


class StackError(Exception):
    """The stack cannot start, and starting it again would not help. The message says what to change; exit code 78."""
