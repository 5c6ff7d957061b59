"""Whether a tokenizer fits the texts: a model reads nothing in a text of unknown tokens, and little in single bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contract.encoding import Text, TextEncoder

SAMPLE_TEXTS = 2000
MOST_UNKNOWN = 0.2
"""Share of unknown tokens above which a tokenizer does not fit."""
MOST_PER_CHARACTER = 1.2
"""Tokens per character above which the tokenizer spells the script in bytes: a vocabulary that knows the characters
needs at most one token for each of them, and one for the start of a word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Tokens of some texts, special tokens not counted."""

    tokens: int
    unknown: int
    characters: int
    """One more for each text: tokenizers may mark the start of the first word."""

    @property
    def unknown_share(self) -> float:
        """Of the tokens."""
        return self.unknown / max(1, self.tokens)

    @property
    def warning(self) -> str | None:
        """What is wrong, as a clause; None if the tokenizer fits."""
        if self.unknown_share > MOST_UNKNOWN:
            return (
                f"{self.unknown_share:.0%} of the tokens are unknown to the vocabulary: the model cannot read these "
                "texts; take a model of their language and case"
            )
        if self.tokens > MOST_PER_CHARACTER * self.characters:
            return (
                f"{self.tokens / max(1, self.characters):.1f} tokens per character: the tokenizer spells these texts "
                "in bytes, it was made for another script; take a model of their language"
            )
        return None


def fit_of(text_encoder: TextEncoder, texts: Sequence[Text]) -> Fit:
    """Measure a tokenizer on texts spread evenly over the given ones."""
    sample = texts[:: max(1, len(texts) // SAMPLE_TEXTS)]
    measured = text_encoder.measure(sample)
    specials = [text_encoder.specials(text) for text in sample]
    return Fit(
        tokens=sum(each.tokens for each in measured) - sum(specials),
        unknown=sum(each.unknown for each in measured),
        characters=sum(len(text) + 1 if isinstance(text, str) else len(text[0]) + len(text[1]) + 2 for text in sample),
    )
