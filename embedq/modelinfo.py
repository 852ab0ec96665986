"""What a service says about its model: a dict that may be awaited, and need not be."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Self

Asked = Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]
"""Asks the server in the caller's event loop."""
AskedPlainly = Callable[[], Mapping[str, Any]]
"""Asks the server while the calling thread waits."""

_FIELDS = ("model_name", "device", "embedding_size")
_LOOKS = (
    "__contains__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ "
    "__setitem__ clear copy get items keys pop popitem setdefault update values"
)


class NotAwaited:
    """Stands for a fact that nobody has asked for. Code in C reads a dict past its methods: it refuses this one.

    None would be taken for an answer.
    """

    def __repr__(self) -> str:
        return "<await get_model_info()>"


class ModelInfo(dict[str, Any]):
    """`model_name`, `device` and `embedding_size` of the model.

    An in-process service knows them and returns them at once. Here a server has to be asked. `await` does that without
    blocking anybody. Code that does not await gets the same dict: it asks when somebody first looks into it, and the
    thread waits for the answer. Serializers in C never look (orjson, pydantic): theirs needs the `await`.
    """

    def __init__(self, known: Mapping[str, Any] | None, ask: Asked, ask_plainly: AskedPlainly) -> None:
        """`known`: None as long as somebody has to be asked."""
        # Never empty: json's encoder takes the size of a dict from underneath, and asks no further if it is 0.
        super().__init__(known or dict.fromkeys(_FIELDS, NotAwaited()))
        self._known = known is not None
        self._ask = ask
        self._ask_plainly = ask_plainly

    def __await__(self) -> Generator[Any, None, Self]:
        return self._awaited().__await__()

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # a copy in another process has nobody to ask

    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather wants one of what it awaits

    def look(self) -> Self:
        """Itself, filled."""
        if not self._known:
            self._fill(self._ask_plainly())
        return self

    async def _awaited(self) -> Self:
        if not self._known:
            self._fill(await self._ask())
        return self

    def _fill(self, found: Mapping[str, Any]) -> None:
        super().update(found)
        self._known = True


def _looking(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def method(self: ModelInfo, *args: Any, **named: Any) -> Any:
        return plain(self.look(), *args, **named)

    method.__name__ = name
    return method


for _name in _LOOKS.split():
    setattr(ModelInfo, _name, _looking(_name))


class Done:
    """What a call returns that is over already: it may be awaited, and need not be."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
