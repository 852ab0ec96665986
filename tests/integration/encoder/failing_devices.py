"""A module of a model that fails as a device does."""

from typing import Any

import torch
from torch import nn


class FailingDevice(nn.Module):
    """The last module of a model; fails as a device does once `message` is set, and with more than `max_texts`."""

    message: str | None = None
    max_texts = 1000

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        if self.message is not None:
            raise torch.AcceleratorError(self.message)
        if len(features["sentence_embedding"]) > self.max_texts:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return features
