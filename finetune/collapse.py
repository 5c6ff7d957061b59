"""Training that has not learned: every text gets the same class, as if only their frequencies were known.

Known from BERT-large, RoBERTa and ALBERT-xlarge on small sets at usual learning rates (google-research/bert#151,
Mosbach et al. 2021); a lower rate and another seed usually cure it.
"""

from __future__ import annotations

import math
from typing import Any

from contract.errors import Failure

AFTER = 0.5
"""Share of the steps that a run may take before it is judged."""
FEWEST_STEPS = 100
"""Shorter runs may not have got anywhere yet, which a lower rate does not mend."""
LOWER = 3.0
"""By how much the learning rate of the second try is divided."""


class Collapsed(Failure):
    """The run learns nothing or its loss is no number; the message says which and what to do."""


def has_collapsed(figures: dict[str, Any]) -> bool:
    """Whether an evaluation shows one class for all texts and a loss no better than the frequencies give."""
    if figures.get("predicted_classes") != 1:
        return False
    counts = [row["support"] for row in figures["per_class"].values() if row["support"]]
    entropy = -sum(count / sum(counts) * math.log(count / sum(counts)) for count in counts)
    return len(counts) > 1 and figures["loss"] > 0.95 * entropy
