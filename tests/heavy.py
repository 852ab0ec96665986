"""Libraries that take seconds and hundreds of megabytes, each imported when a test first touches it.

Every process of a test run collects every file. With these imports at the top of test files, each process held 766 MB
before its first test.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.tracing import importing

if TYPE_CHECKING:
    import duckdb
    import haystack
    import haystack.components.embedders as haystack_embedders
    import haystack.utils as haystack_utils
    import langchain_openai
    import openai
    import polars as pl
    import safetensors.torch as safetensors_torch
    import sentence_transformers
    import sentence_transformers.sentence_transformer.modules as sentence_modules
    import torch
    import transformers

    from tests.integration.encoder import failing_devices
else:

    class _Library:
        """Stands for a module until one of its names is asked for."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("_") or "pytest" in attribute:  # pytest asks each name of a file what it is
                raise AttributeError(attribute)
            if self._name not in sys.modules:
                with importing():
                    import_module(self._name)
            return getattr(import_module(self._name), attribute)

    duckdb = _Library("duckdb")
    haystack = _Library("haystack")
    haystack_embedders = _Library("haystack.components.embedders")
    haystack_utils = _Library("haystack.utils")
    langchain_openai = _Library("langchain_openai")
    openai = _Library("openai")
    pl = _Library("polars")
    sentence_transformers = _Library("sentence_transformers")
    safetensors_torch = _Library("safetensors.torch")
    sentence_modules = _Library("sentence_transformers.sentence_transformer.modules")
    torch = _Library("torch")
    transformers = _Library("transformers")
    failing_devices = _Library("tests.integration.encoder.failing_devices")

__all__ = [
    "duckdb",
    "failing_devices",
    "haystack",
    "haystack_embedders",
    "haystack_utils",
    "langchain_openai",
    "openai",
    "pl",
    "safetensors_torch",
    "sentence_modules",
    "sentence_transformers",
    "torch",
    "transformers",
]
