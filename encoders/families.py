"""The three families by their Hugging Face ``model_type``."""

from __future__ import annotations

from encoders.albert import ALBERT
from encoders.bert import BERT
from encoders.family import Family
from encoders.roberta import ROBERTA

FAMILIES: dict[str, Family] = {family.name: family for family in (BERT, ROBERTA, ALBERT)}
