"""What the papers measured, for the column beside ours. Never to be compared in size: model, data and tasks differ.

RoBERTa: Liu et al. 2019, https://arxiv.org/abs/1907.11692. ALBERT: Lan et al. 2019, https://arxiv.org/abs/1909.11942.
"""

from __future__ import annotations

from collections.abc import Mapping

Row = Mapping[str, float | str]

FORMATS: Mapping[str, Row] = {  # RoBERTa, table 2: BERT-base size, 1M steps of 256, median of five seeds
    "segment-pair + NSP": {"SQuAD2.0 F1": 78.7, "MNLI-m": 84.0, "SST-2": 92.9, "RACE": 64.2},
    "sentence-pair + NSP": {"SQuAD2.0 F1": 76.2, "MNLI-m": 82.9, "SST-2": 92.1, "RACE": 63.0},
    "full-sentences": {"SQuAD2.0 F1": 79.1, "MNLI-m": 84.7, "SST-2": 92.5, "RACE": 64.8},
    "doc-sentences": {"SQuAD2.0 F1": 79.7, "MNLI-m": 84.7, "SST-2": 92.7, "RACE": 65.6},
}
MASKING: Mapping[str, Row] = {  # RoBERTa, table 1
    "static": {"SQuAD2.0 F1": 78.3, "MNLI-m": 84.3, "SST-2": 92.5},
    "dynamic": {"SQuAD2.0 F1": 78.7, "MNLI-m": 84.0, "SST-2": 92.9},
}
BATCH: Mapping[str, Row] = {  # RoBERTa, table 3
    "256 x 1M": {"perplexity": 3.99, "MNLI-m": 84.7, "SST-2": 92.7},
    "2K x 125K": {"perplexity": 3.68, "MNLI-m": 85.2, "SST-2": 92.9},
    "8K x 31K": {"perplexity": 3.77, "MNLI-m": 84.6, "SST-2": 92.8},
}
SENTENCE: Mapping[str, Row] = {  # ALBERT, table 5; accuracies in per cent
    "none": {"MLM": 54.9, "NSP": 52.4, "SOP": 53.3, "average": 79.0},
    "NSP": {"MLM": 54.5, "NSP": 90.5, "SOP": 52.0, "average": 79.2},
    "SOP": {"MLM": 54.0, "NSP": 78.9, "SOP": 86.5, "average": 80.1},
}
EMBEDDING: Mapping[tuple[int, str], Row] = {  # ALBERT, tables 3 and 4: (E, sharing)
    (64, "all"): {"parameters": "10M", "average": 79.0},
    (128, "all"): {"parameters": "12M", "average": 80.1},
    (256, "all"): {"parameters": "16M", "average": 79.6},
    (768, "all"): {"parameters": "31M", "average": 79.8},
    (128, "attention"): {"parameters": "64M", "average": 81.7},
    (768, "attention"): {"parameters": "83M", "average": 81.6},
    (128, "ffn"): {"parameters": "38M", "average": 80.2},
    (768, "ffn"): {"parameters": "57M", "average": 79.5},
    (64, "none"): {"parameters": "87M", "average": 81.3},
    (128, "none"): {"parameters": "89M", "average": 81.7},
    (256, "none"): {"parameters": "93M", "average": 81.8},
    (768, "none"): {"parameters": "108M", "average": 82.3},
}
DEPTH: Mapping[int, Row] = {  # ALBERT, table 11: ALBERT-large, each started from the shallower one
    1: {"average": 52.9},
    3: {"average": 71.2},
    6: {"average": 77.2},
    12: {"average": 81.5},
    24: {"average": 82.1},
    48: {"average": 81.8},
}
