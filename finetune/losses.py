"""What training minimises, as sums over rows, so that a batch in parts adds up to the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from contract.scores import ProblemType

MOST_POSITIVE_WEIGHT = 100.0
"""Of a label in multi-label data, so that one seen once in a large file does not outweigh all others."""


def summed_loss(
    logits: Tensor,
    targets: Tensor,
    problem_type: ProblemType,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
    focal_gamma: float = 0.0,
) -> Tensor:
    """Sum over rows of the loss of each row, computed in float32 at least.

    Args:
        logits: (batch, labels).
        targets: as ``rows.targets_of`` makes them, as a tensor.
        problem_type: cross-entropy for one label, mean binary cross-entropy over the labels for several, squared
            error for regression.
        weights: (labels,) see ``class_weights``.
        smoothing: share of the target that is spread over all classes (Szegedy et al. 2016).
        focal_gamma: rows that are right already count (1 - p) ^ gamma (Lin et al. 2017); 0 is off, 2 the paper's value.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    weights = None if weights is None else weights.to(logits.dtype)
    match problem_type:
        case "single_label_classification":
            if not focal_gamma:
                return F.cross_entropy(logits, targets, weight=weights, label_smoothing=smoothing, reduction="sum")
            row_loss = F.cross_entropy(logits, targets, weight=weights, reduction="none")
            right = logits.softmax(dim=1).gather(1, targets[:, None]).squeeze(1)
            return ((1 - right) ** focal_gamma * row_loss).sum()
        case "multi_label_classification":
            soft = targets * (1 - smoothing) + smoothing / 2
            loss = F.binary_cross_entropy_with_logits(logits, soft, pos_weight=weights, reduction="none")
            if focal_gamma:
                given = logits.sigmoid()
                loss = loss * (1 - torch.where(targets > 0, given, 1 - given)) ** focal_gamma
            return loss.mean(dim=1).sum()
        case "regression":
            return F.mse_loss(logits, targets, reduction="none").mean(dim=1).sum()


def summed_divergence(logits: Tensor, others: Tensor, problem_type: ProblemType) -> Tensor:
    """R-Drop's second term: how far two passes with different dropout are apart (Liang et al. 2021).

    Sum over rows of (KL(p || q) + KL(q || p)) / 2 = sum over classes of (p - q) (log p - log q) / 2; for several labels
    the mean over labels of the same for each label's two outcomes.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    logits, others = logits.to(wide), others.to(wide)
    if problem_type == "multi_label_classification":
        # log p - log q of "given" and of "not given" differ by the difference of the logits
        return ((logits.sigmoid() - others.sigmoid()) * (logits - others) / 2).mean(dim=1).sum()
    first, second = logits.log_softmax(dim=1), others.log_softmax(dim=1)
    return ((first.exp() - second.exp()) * (first - second)).sum() / 2


def class_weights(targets: npt.NDArray[Any], classes: Sequence[str], problem_type: ProblemType) -> Tensor:
    """(labels,) float32 weights that make rare classes count as much as frequent ones.

    For one label rows / (classes x rows of the class), scikit-learn's "balanced": the mean over rows is 1, so that the
    learning rate keeps its meaning. For several, the weight of a given label is rows without it / rows with it.
    """
    if problem_type == "multi_label_classification":
        given = targets.sum(axis=0)
        ratio = (len(targets) - given) / np.maximum(given, 1)
        return torch.tensor(np.clip(ratio, 1 / MOST_POSITIVE_WEIGHT, MOST_POSITIVE_WEIGHT), dtype=torch.float32)
    counts = np.bincount(targets, minlength=len(classes))
    occurring = np.count_nonzero(counts)
    return torch.tensor(np.where(counts, len(targets) / (occurring * np.maximum(counts, 1)), 1.0), dtype=torch.float32)
