"""A tokenizer from the training text, for encoders that start with random weights.

The default is byte-level BPE for every family: any text has a lossless encoding without unknown tokens, and encoders
that are to be compared differ in their design only. ``unigram`` (SentencePiece's model) and ``wordpiece`` (BERT's,
lower-cased) are what ALBERT and BERT were published with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from contract.errors import UsageError
from contract.tokenizer_files import add_family_template, special_tokens
from labelled.reader import Row

Kind = Literal["bpe", "unigram", "wordpiece"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def train_tokenizer(rows: Iterable[Row], *, family: str, kind: Kind, vocab_size: int) -> Tokenizer:
    """Learn a vocabulary.

    The same rows give the same tokenizer, except for ``unigram``: its trainer in the tokenizers library sums in the
    order of a randomly seeded hash table.

    Args:
        rows: whose texts are learned from.
        family: decides the special tokens, their ids and the template.
        kind: the model.
        vocab_size: most tokens. Little text gives fewer: what is never seen twice is not worth a token.

    Raises:
        UsageError: there is no such kind.
    """
    texts = [part for row in rows for part in ((row.text,) if isinstance(row.text, str) else row.text)]
    specials = list(special_tokens(family))
    match kind:
        case "bpe":
            tokenizer = _byte_level_bpe(texts, specials, vocab_size)
        case "unigram":
            tokenizer = _unigram(texts, specials, vocab_size)
        case "wordpiece":
            tokenizer = _wordpiece(texts, specials, vocab_size)
        case _:
            raise UsageError(f"--tokenizer is {kind!r}; one of {', '.join(KINDS)} was expected.")
    add_family_template(tokenizer, family)
    return tokenizer


def _byte_level_bpe(texts: list[str], specials: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    # The space before the first word makes it the same token as inside a sentence. RoBERTa has none, at the price of
    # two tokens for every word that can begin a text.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _unigram(texts: list[str], specials: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=specials, unk_token=_unknown(specials), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _wordpiece(texts: list[str], specials: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=_unknown(specials)))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    words = [
        word
        for text in texts
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    ]
    # The trainer numbers single characters in the order of a randomly seeded hash table, and merges depend on the
    # numbers. Numbered before as if they were special tokens, they leave it no choice.
    counts = Counter(piece for word in words for piece in _characters(word))
    alphabet = sorted(sorted(counts, key=lambda piece: (-counts[piece], piece))[: vocab_size // 2])
    known = set(alphabet)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=specials + alphabet, show_progress=False
    )
    learner = Tokenizer(models.WordPiece(unk_token=_unknown(specials)))
    learner.train_from_iterator((word for word in words if known.issuperset(_characters(word))), trainer)
    tokenizer.model = models.WordPiece(learner.get_vocab(), unk_token=_unknown(specials))
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _characters(word: str) -> list[str]:
    return [word[0], *(f"##{character}" for character in word[1:])]


def _unknown(specials: list[str]) -> str:
    return next(token for token in specials if "unk" in token.lower())
