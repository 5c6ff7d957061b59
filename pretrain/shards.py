"""One unit of work: documents to a shard, a folder with tokens, lengths and hashes, written whole or not at all.

Runs in worker processes. Memory is bounded by the longest document plus one buffer of text, whatever the unit's size.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from contract.errors import DataError
from contract.storage import read_json, replace_folder, write_json
from pretrain.cleaning import clean
from pretrain.documents import read_documents
from pretrain.sentences import CJK, split_document
from pretrain.signatures import signature
from pretrain.sources import Reading, Unit
from pretrain.vocabulary import for_sentences, load_plain

BUFFER_CHARACTERS = 1 << 18
"""Text that is tokenised in one call."""
DOCUMENT = np.dtype([("hash", "<u8", 2), ("tokens", "<u8"), ("sentences", "<u4")])
"""What a shard knows about a document: the hash of its cleaned text and its sizes."""
_CJK_RUNS = re.compile(f"[{CJK}]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What, beside the unit itself, decides a shard's bytes."""

    reading: Reading
    min_characters: int
    """Documents with fewer characters after cleaning are dropped."""
    near_duplicates: bool
    """Whether documents get a MinHash signature."""
    tokenizer_path: Path
    tokenizer_sha256: str
    unknown_id: int | None
    dtype: str
    """numpy name of the tokens' type: ``uint16`` or ``uint32``."""

    def key(self) -> str:
        """Identity, for telling whether a finished shard may be used again. Paths do not matter, contents do."""
        parts = (self.reading, self.min_characters, self.near_duplicates, self.tokenizer_sha256, self.dtype)
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard on disk."""

    folder: Path

    def documents(self) -> npt.NDArray[np.void]:
        """(documents,) of ``DOCUMENT``."""
        return _mapped(self.folder / "documents.bin", DOCUMENT)

    def sentence_lengths(self) -> npt.NDArray[np.uint32]:
        """(sentences,) tokens of each sentence."""
        return _mapped(self.folder / "sentences.bin", np.dtype("<u4"))

    def tokens(self, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        """(tokens,) ids."""
        return _mapped(self.folder / "tokens.bin", np.dtype(dtype))

    def signatures(self, width: int) -> npt.NDArray[np.uint32]:
        """(documents, width) MinHash values."""
        return _mapped(self.folder / "signatures.bin", np.dtype("<u4")).reshape(-1, width)

    def counts(self) -> Counter[str]:
        """What was counted while the shard was made."""
        return Counter(read_json(self.folder / "counts.json", DataError))


def _mapped(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def shard_folder(work: Path, number: int, unit: Unit, recipe: Recipe) -> Path:
    """Where the shard of a unit lies; the name changes with everything that would change the content."""
    return work / f"{number:06d}-{unit.key()}-{recipe.key()}"


@lru_cache(maxsize=1)
def _tokenizer(path: Path, sha256: str) -> tuple[Tokenizer, str]:
    """Loaded once per process, with the prefix of documents; ``sha256`` makes the cache forget a replaced file."""
    return for_sentences(load_plain(path))


def make_shard(unit: Unit, recipe: Recipe, folder: Path) -> Counter[str]:
    """Read, clean, split and tokenise the documents of a unit and write its shard.

    Returns:
        The counts, which the shard also holds.

    Raises:
        DataError: bad input that is to be refused.
        OSError: the disk is full, or the input vanished.
    """
    counts: Counter[str] = Counter()
    tokenizer, prefix = _tokenizer(recipe.tokenizer_path, recipe.tokenizer_sha256)
    with replace_folder(folder) as fresh, ExitStack() as stack:
        names = ["tokens", "sentences", "documents", *(["signatures"] if recipe.near_duplicates else [])]
        files = {name: stack.enter_context((fresh / f"{name}.bin").open("wb")) for name in names}

        def flush(texts: list[list[str]], hashes: list[bytes]) -> None:
            ids, lengths, documents = _encode(tokenizer, texts, hashes, recipe.dtype)
            if recipe.unknown_id is not None:
                counts["unknown_tokens"] += int(np.count_nonzero(ids == recipe.unknown_id))
            counts["empty_documents"] += len(hashes) - len(documents)
            counts["tokens"] += len(ids)
            counts["sentences"] += len(lengths)
            files["tokens"].write(ids.tobytes())
            files["sentences"].write(lengths.tobytes())
            files["documents"].write(documents.tobytes())
            if recipe.near_duplicates:
                for part in np.split(ids, np.cumsum(documents["tokens"], dtype=np.int64)[:-1]):
                    files["signatures"].write(signature(part).tobytes())

        texts: list[list[str]] = []
        hashes: list[bytes] = []
        waiting = 0
        for document in read_documents(unit, recipe.reading, counts):
            lines = clean(document, counts)
            characters = sum(map(len, lines))
            if characters < max(1, recipe.min_characters):
                counts["tiny_documents" if lines else "empty_documents"] += 1
                continue
            counts["characters"] += characters
            counts["cjk_characters"] += _cjk_characters(lines)
            hashes.append(hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest())
            sentences = list(split_document(lines))
            texts.append([prefix + sentences[0], *sentences[1:]])
            waiting += characters
            if waiting >= BUFFER_CHARACTERS:
                flush(texts, hashes)
                texts, hashes, waiting = [], [], 0
        if texts:
            flush(texts, hashes)
        stack.close()
        write_json(fresh / "counts.json", dict(sorted(counts.items())))
    return counts


def _encode(
    tokenizer: Tokenizer, texts: list[list[str]], hashes: list[bytes], dtype: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32], npt.NDArray[np.void]]:
    """Ids (tokens,), lengths (sentences,) and records (documents,); what has no tokens at all is left out."""
    encodings = tokenizer.encode_batch_fast(list(itertools.chain.from_iterable(texts)), add_special_tokens=False)
    pieces = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, pieces), dtype="<u4", count=len(pieces))
    ids = np.fromiter(itertools.chain.from_iterable(pieces), dtype=dtype, count=int(lengths.sum()))
    documents = np.zeros(len(texts), dtype=DOCUMENT)
    documents["hash"] = np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2)
    owner = np.repeat(np.arange(len(texts)), [len(sentences) for sentences in texts])
    documents["tokens"] = np.bincount(owner, weights=lengths, minlength=len(texts))
    documents["sentences"] = np.bincount(owner[lengths > 0], minlength=len(texts))
    return ids, lengths[lengths > 0], documents[documents["tokens"] > 0]


def _cjk_characters(lines: list[str]) -> int:
    return sum(len(run) for line in lines if not line.isascii() for run in _CJK_RUNS.findall(line))
