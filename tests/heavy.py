"""Libraries that take seconds and hundreds of megabytes, each imported when a test first touches it.

Every process of a test run collects every file. With these imports at the top of test files, each process held 766 MB
before its first test.
"""

# ruff: noqa: TC004 - the names are those of the stand-ins

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "haystack_embedders": "haystack.components.embedders",
    "haystack_utils": "haystack.utils",
    "safetensors_torch": "safetensors.torch",
    "sentence_modules": "sentence_transformers.sentence_transformer.modules",
}
__all__ = [
    "haystack",
    "haystack_embedders",
    "haystack_utils",
    "langchain_openai",
    "openai",
    "safetensors_torch",
    "sentence_modules",
    "sentence_transformers",
    "torch",
    "transformers",
]

if TYPE_CHECKING:
    import haystack
    import haystack.components.embedders as haystack_embedders
    import haystack.utils as haystack_utils
    import langchain_openai
    import openai
    import safetensors.torch as safetensors_torch
    import sentence_transformers
    import sentence_transformers.sentence_transformer.modules as sentence_modules
    import torch
    import transformers
else:

    class _Library:
        """Stands for a module until one of its names is asked for.

        It is imported untraced, and without rounds of the garbage collector over what stays.
        """

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("_") or "pytest" in attribute:  # pytest asks each name of a file what it is
                raise AttributeError(attribute)
            if self._name not in sys.modules:
                traced, collects = sys.gettrace(), gc.isenabled()
                gc.disable()
                sys.settrace(None)  # of this thread; the function for new threads belongs to all
                try:
                    import_module(self._name)
                finally:
                    sys.settrace(traced)
                    if collects:
                        gc.enable()
            return getattr(sys.modules[self._name], attribute)

    globals().update({name: _Library(_MODULES.get(name, name)) for name in __all__})
