"""The description of a service's model: a dict that may be awaited but need not be."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Self

Ask = Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]
"""Asks the server in the caller's event loop."""
AskBlocking = Callable[[], Mapping[str, Any]]
"""Asks the server while the calling thread waits."""

_FIELDS = ("model_name", "device", "embedding_size")
_METHODS = (
    "__contains__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ "
    "__setitem__ clear copy get items keys pop popitem setdefault update values"
)


class NotAwaited:
    """Stands for a fact that was not asked for yet. Serializers in C read a dict past its methods, and refuse this.

    They would take None for the fact.
    """

    def __repr__(self) -> str:
        return "<await get_model_info()>"


class ModelInfo(dict[str, Any]):
    """`model_name`, `device` and `embedding_size` of the model.

    An in-process service knows them and returns them at once. Here a server has to be asked. `await` does that without
    blocking. Code that does not await gets the same dict, which asks at its first use while the thread waits.
    Serializers in C (orjson, pydantic) call no method of it: they need the `await`.
    """

    def __init__(self, facts: Mapping[str, Any] | None, ask: Ask, ask_blocking: AskBlocking) -> None:
        """`facts`: None as long as the server has to be asked."""
        # Never empty: json's encoder takes the size of a dict from underneath, and asks no further if it is 0.
        super().__init__(facts or dict.fromkeys(_FIELDS, NotAwaited()))
        self._filled = facts is not None
        self._ask = ask
        self._ask_blocking = ask_blocking

    def __await__(self) -> Generator[Any, None, Self]:
        return self._awaited().__await__()

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # a copy in another process has no server to ask

    __hash__ = object.__hash__  # type: ignore[assignment]  # asyncio.gather hashes what it awaits

    def filled(self) -> Self:
        """Asks the server if need be; returns itself."""
        if not self._filled:
            self._fill(self._ask_blocking())
        return self

    async def _awaited(self) -> Self:
        if not self._filled:
            self._fill(await self._ask())
        return self

    def _fill(self, facts: Mapping[str, Any]) -> None:
        super().update(facts)
        self._filled = True


def _filling(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def method(self: ModelInfo, *args: Any, **named: Any) -> Any:
        return plain(self.filled(), *args, **named)

    method.__name__ = name
    return method


for _name in _METHODS.split():
    setattr(ModelInfo, _name, _filling(_name))


class Done:
    """The result of a call that is already over: it may be awaited but need not be."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
