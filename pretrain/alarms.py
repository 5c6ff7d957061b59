"""What can go wrong without an error, and is noticed here: NaN, a jump of the loss, and a model that does not learn.

The last one is ALBERT's classic: the masked-token loss falls to the *unigram entropy* (what one gets by guessing each
word by its frequency alone) and stays there, because attention never starts to matter. Many have taken that flat line
for slow learning. So the entropy of the store is measured, logged beside the loss, and staying on it is reported.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from contract.errors import Failure
from pretrain.store import TRAIN, Store

WINDOW = 64
"""Steps over which the loss is averaged."""
PATIENCE = 400
"""Steps after the warm-up before a flat loss is called a plateau; a healthy model leaves it well before."""
PLATEAU_SHARE = 0.97
"""A mean loss above this share of the unigram entropy counts as on it."""
COUNTED_TOKENS = 1 << 24
"""Tokens that the entropy is measured on."""


class TrainingBroke(Failure):
    """The loss is not a number, or jumped; nothing was updated with it."""


def unigram_entropy(store: Store) -> float:
    """Loss in nats of the best guess that knows each token's frequency and nothing else, on the training split."""
    first, last = store.split_documents(TRAIN)
    begin, end = (int(store.sentences[store.documents[document]]) for document in (first, last))
    tokens = np.asarray(store.tokens[begin : min(end, begin + COUNTED_TOKENS)])
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / max(1, len(tokens))
    return float(-(shares * np.log(shares)).sum())


class Alarms:
    """Looks at each step's loss before the update.

    Args:
        spike_nats: a loss so far above the mean of the last ``WINDOW`` steps is a spike; 0 switches this off.
        entropy: unigram entropy of the data, in nats.
        warmup_steps: nothing is called a plateau before ``PATIENCE`` steps after it.
    """

    def __init__(self, *, spike_nats: float, entropy: float, warmup_steps: int) -> None:
        self._spike = spike_nats
        self._entropy = entropy
        self._patient_until = warmup_steps + PATIENCE
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self.plateau = False
        """Whether the mean loss is at the unigram entropy although it is late."""

    def check(self, step: int, word_loss: float, gradient_norm: float) -> str | None:
        """Judge a step.

        Args:
            step: its number, from 1.
            word_loss: mean over the masked tokens, in nats.
            gradient_norm: of the whole gradient.

        Returns:
            A note for the user when a plateau begins or ends.

        Raises:
            TrainingBroke: the loss or the gradient is not finite, or the loss jumped.
        """
        if not (math.isfinite(word_loss) and math.isfinite(gradient_norm)):
            raise TrainingBroke(f"the loss became {word_loss} with a gradient of norm {gradient_norm} at step {step}")
        if self._spike and len(self._recent) == WINDOW and word_loss > self._mean() + self._spike:
            raise TrainingBroke(
                f"the loss jumped from about {self._mean():.2f} to {word_loss:.2f} at step {step} "
                f"(more than {self._spike:g} nats)"
            )
        self._recent.append(word_loss)
        return self._look_for_plateau(step)

    def _mean(self) -> float:
        return sum(self._recent) / len(self._recent)

    def _look_for_plateau(self, step: int) -> str | None:
        if step < self._patient_until or len(self._recent) < WINDOW:
            return None
        before, self.plateau = self.plateau, self._mean() > PLATEAU_SHARE * self._entropy
        if self.plateau and not before:
            return (
                f"step {step}: the loss has stayed at {self._mean():.2f}, and guessing by word frequency alone gives "
                f"{self._entropy:.2f}: the model does not use the context. Lower --learning-rate three times, or "
                "warm up for longer."
            )
        if before and not self.plateau:
            return f"step {step}: the loss has left the plateau of word frequencies ({self._entropy:.2f})."
        return None

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"recent": list(self._recent), "plateau": self.plateau}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``."""
        self._recent = deque(state["recent"], maxlen=WINDOW)
        self.plateau = bool(state["plateau"])
