"""Modules of a model that fail as a device does."""

from typing import Any

import torch
from torch import nn


class LostDevice(nn.Module):
    """The last module of a model; fails as a device does once `message` is set."""

    message: str | None = None

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        if self.message is not None:
            raise torch.AcceleratorError(self.message)
        return features


class SmallDevice(nn.Module):
    """The last module of a model; runs out of memory with more than `max_texts` at once."""

    max_texts = 1000

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        if len(features["sentence_embedding"]) > self.max_texts:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return features
