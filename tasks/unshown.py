"""What a NamedTuple does not show of itself: what somebody submitted belongs into no log and no error."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T", bound=NamedTuple)


def unshown(*names: str) -> Callable[[type[T]], type[T]]:
    """Leaves these fields out of the repr, as `repr=False` does for a dataclass."""

    def leaving_out(kind: type[T]) -> type[T]:
        def shown(value: T) -> str:
            fields = (f"{name}={field!r}" for name, field in zip(kind._fields, value, strict=True) if name not in names)
            return f"{kind.__name__}({', '.join(fields)})"

        kind.__repr__ = shown  # type: ignore[assignment]  # of a class of which mypy knows no more than that
        return kind

    return leaving_out
