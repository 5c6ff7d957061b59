"""What training minimises, as sums over rows, so that a batch in parts adds up to the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from contract.scores import ProblemType


def summed_loss(logits: Tensor, targets: Tensor, problem_type: ProblemType) -> Tensor:
    """Sum over rows of the loss of each row, computed in float32 at least.

    Args:
        logits: (batch, labels).
        targets: as ``rows.targets_of`` makes them, as a tensor.
        problem_type: cross-entropy for one label, mean binary cross-entropy over the labels for several, squared
            error for regression.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    match problem_type:
        case "single_label_classification":
            return F.cross_entropy(logits, targets, reduction="sum")
        case "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1).sum()
        case "regression":
            return F.mse_loss(logits, targets, reduction="none").mean(dim=1).sum()
