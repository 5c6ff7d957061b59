"""Encoded texts as one row of real tokens on the device of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from contract.encoding import EncodedText
from encoders.packing import Packing


def pack(texts: Sequence[EncodedText], device: torch.device) -> dict[str, Any]:
    """Arguments of ``SequenceClassifier.forward`` for texts in this order, without padding.

    Neighbours of equal length share an attention rectangle, so texts that come sorted by length are computed fastest.

    Args:
        texts: at least one.
        device: of the model.
    """

    def row(parts: list[np.ndarray]) -> torch.Tensor:
        """(1, tokens) int64."""
        return torch.from_numpy(np.concatenate(parts)).unsqueeze(0).to(device, non_blocking=True)

    return {
        "input_ids": row([text.input_ids for text in texts]),
        "token_type_ids": row([text.token_type_ids for text in texts]),
        "packing": Packing(tuple(len(text.input_ids) for text in texts)),
    }
