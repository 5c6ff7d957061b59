"""Small stores for tests: of real texts through the whole of ``prepare``, or of given token numbers, at once."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pretrain.prepare import PrepareSettings, prepare
from pretrain.store import Store
from pretrain.tokenizer import FAMILY, TokenizerKind, TokenizerPlan, train_tokenizer
from pretrain.vocabulary import describe

SHARED = Path(__file__).parents[2].parent / "shared"
CASES = SHARED / "cases" / "open"
TEXT = [
    "The unbelievable story of the lighthouse keeper's daughter.",
    " It's a well-known tale: nobody had believed it, until 1923.",
    " Strange lights, unusual sounds and unbelievably large waves were seen.",
    "天地玄黄，宇宙洪荒。",
    "日月盈昃，辰宿列张。",
    " Naïve café owners don't believe that the light was believable.",
]


def shared(path: Path) -> Path:
    """A file or folder of the shared data, or a skipped test."""
    if not path.exists():
        pytest.skip(f"the shared data is not beside this checkout: {path.name}")
    return path


@lru_cache
def tiny_tokenizer(kind: TokenizerKind) -> Tokenizer:
    sizes = {"bpe": 330, "unigram": 110, "wordpiece": 180}
    return train_tokenizer(
        TokenizerPlan(source=kind, vocab_size=sizes[kind], character_coverage=1.0), TEXT * 20
    ).tokenizer


def store_of(documents: Sequence[Sequence[int]], kind: TokenizerKind = "bpe", heldout: int = 0) -> Store:
    """A store whose documents have sentences of the given numbers of tokens; each token is a running ordinary id.

    Args:
        documents: for each document, the tokens of each sentence.
        kind: of the tokenizer.
        heldout: documents at the end that are held out.
    """
    vocabulary = describe(tiny_tokenizer(kind))
    lengths = np.array([n for document in documents for n in document], dtype=np.int64)
    ordinary = vocabulary.ordinary_ids
    tokens = ordinary[np.arange(lengths.sum()) % len(ordinary)].astype(np.uint16)
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    offsets = np.concatenate(([0], np.cumsum([len(document) for document in documents]))).astype(np.int64)
    middle = len(documents) - heldout
    manifest: dict[str, Any] = {
        "splits": {"train": {"documents": [0, middle]}, "heldout": {"documents": [middle, len(documents)]}},
        "tokenizer": {"family": FAMILY[kind]},
    }
    return Store(
        folder=Path("store"),
        manifest=manifest,
        tokens=tokens,
        sentences=sentences,
        documents=offsets,
        tokenizer=tiny_tokenizer(kind),
        vocabulary=vocabulary,
    )


def settings(source: str = "bpe", **changes: Any) -> PrepareSettings:
    """Settings for tiny texts."""
    plan = {"vocab_size": 330, "character_coverage": 1.0} | changes.pop("plan", {})
    return PrepareSettings(tokenizer=TokenizerPlan(source=source, **plan), **changes)


def prepared(folder: Path, text: str, source: str = "bpe", **changes: Any) -> Store:
    """The store of one text file, made in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return prepare([folder / "text.txt"], folder / "store", settings(source, **changes), workers=1)
