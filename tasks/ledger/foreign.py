"""Fields of embedding calls in the forms that other servers' clients send them in, as the values that are meant here.

A client is set up once and pointed at many servers, so a field that it always sends must not make its calls fail. What
would give another vector than it asked for is refused all the same.
"""

_CUTS = {"none": False, "end": True}
TRUNCATE_RULE = "be true, false, 'END' (true) or 'NONE' (false); texts can only be cut at their end"


def truncate(value: object) -> object:
    """NVIDIA's and Cohere's words as true or false; whatever else as it is, `START` too: that cuts the other side."""
    return _CUTS.get(value.lower(), value) if isinstance(value, str) else value


def encoding_format(value: object) -> object:
    """None for an empty string; whatever else as it is."""
    return None if value == "" else value


def input_type(value: object) -> str | None:
    """The purpose of the texts; None where it is said in a form that nobody here knows."""
    return value if isinstance(value, str) and value else None
