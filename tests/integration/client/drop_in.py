# ruff: noqa: PT009 - the methods of unittest are what such tests use
"""What the tests of an in-process service do with it, word for word but for the import. Run by `test_service.py`.

It closes nothing, has no address, and awaits the vectors alone: such a service is an object in the same process.
"""

import math
import unittest

from embedq import EmbeddingService


class InProcessServiceTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.service = EmbeddingService(device="cuda")

    async def test_one_text(self) -> None:
        assert len(await self.service.get_embedding("Where do refunds come from?")) == 384

    async def test_texts_that_say_the_same_are_near(self) -> None:
        first, second = await self.service.get_embeddings(["The sun shines today.", "The sun  shines today. "])
        dot = sum(a * b for a, b in zip(first, second, strict=True))
        assert dot / math.hypot(*first) / math.hypot(*second) > 0.5

    def test_the_model_is_described(self) -> None:
        _ = self.service.model  # loads it
        info = self.service.get_model_info()
        assert info.keys() >= {"model_name", "device", "embedding_size"}
        assert info["model_name"] == self.service.model_name
        assert info["device"] == self.service.device
        assert info["embedding_size"] == 384

    def test_the_model_is_forgotten_and_loaded_again(self) -> None:
        _ = self.service.model
        self.assertIsNotNone(self.service._model)
        self.service.clear_cache()
        self.assertIsNone(self.service._model)
        _ = self.service.model
        self.assertIsNotNone(self.service._model)

    async def test_a_name_may_be_given(self) -> None:
        named = EmbeddingService(model_name="sentence-transformers/all-MiniLM-L6-v2", device="cpu")
        assert len(await named.get_embedding("text")) == 384
        assert named.get_model_info()["model_name"] == named.model_name
