"""The token store: one read-only folder from which every training sample is cut.

    tokens.bin      uint16 or uint32, little endian: the tokens of all documents, one after another, no specials
    sentences.idx   int64, (sentences + 1): where each sentence begins in tokens.bin, and the end
    documents.idx   int64, (documents + 1): where each document begins in sentences.idx, and the end
    tokenizer.json  the tokenizer that made the tokens
    manifest.json   format version, fingerprint, counts, splits, cleaning report, sha256 of each file

docs/decisions has the reasons. All arrays are memory maps: opening a store of any size costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from contract.errors import DataError, listing
from contract.storage import read_json, recover_folder, sha256_file
from pretrain.vocabulary import Vocabulary, describe, load_plain, tokenizer_fingerprint

FORMAT_VERSION = 1
TRAIN, HELDOUT = "train", "heldout"
DTYPES = ("uint16", "uint32")

Offsets = npt.NDArray[np.int64]
TokenIds = npt.NDArray[np.unsignedinteger[Any]]


def fingerprint_of(files: Mapping[str, str], splits: Mapping[str, Any]) -> str:
    """Identity of a store's content: of the hashes of its files and of its splits."""
    return hashlib.sha256(json.dumps([dict(files), dict(splits)], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """An open store."""

    folder: Path
    manifest: Mapping[str, Any]
    tokens: TokenIds
    """(tokens,)"""
    sentences: Offsets
    """(sentences + 1,) into ``tokens``"""
    documents: Offsets
    """(documents + 1,) into ``sentences``"""
    tokenizer: Tokenizer
    vocabulary: Vocabulary

    @property
    def fingerprint(self) -> str:
        """Identity of the content; a resumed run compares it."""
        return str(self.manifest["fingerprint"])

    @property
    def family(self) -> str:
        """``bert``, ``roberta`` or ``albert``: the family whose specials and template the tokenizer has."""
        return str(self.manifest["tokenizer"]["family"])

    def split_documents(self, split: str) -> tuple[int, int]:
        """First document of a split and the one after its last.

        Raises:
            DataError: the store has no such split.
        """
        try:
            first, last = self.manifest["splits"][split]["documents"]
        except KeyError:
            raise DataError(
                f"{self.folder} has no split {split!r}; it has {listing(self.manifest['splits'])}."
            ) from None
        return first, last

    def verify(self) -> None:
        """Compare every file with its sha256; reads the whole store.

        Raises:
            DataError: a file was changed.
        """
        for name, expected in self.manifest["files"].items():
            if sha256_file(self.folder / name) != expected:
                raise DataError(f"{self.folder / name} does not match the manifest: it was changed; prepare it again.")

    def require_tokenizer(self, tokenizer: Tokenizer, owner: Path) -> None:
        """Refuse a checkpoint whose tokenizer is not the one that made this store.

        Raises:
            DataError: the tokenizers differ.
        """
        if tokenizer_fingerprint(tokenizer) != self.manifest["tokenizer"]["fingerprint"]:
            raise DataError(
                f"the tokenizer of {owner} ({tokenizer.get_vocab_size()} tokens) is not the one that made "
                f"{self.folder} ({self.vocabulary.size} tokens): every id would mean another token. "
                f"Prepare a store with --tokenizer {owner}."
            )


def open_store(folder: Path) -> Store:
    """Open a store and check that its files are complete.

    Raises:
        DataError: it is not a store, a file is missing or truncated, or a newer program wrote it.
    """
    recover_folder(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; a store is made by: robal pretrain prepare TEXTS --out {folder}")
    manifest = read_json(folder / "manifest.json", DataError)
    if manifest.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{folder} has the store format {manifest.get('format_version')!r}; this program reads {FORMAT_VERSION}: "
            "prepare it again, or use the version that wrote it."
        )
    try:
        counts, dtype = manifest["counts"], manifest["dtype"]
        sizes = {
            "tokens.bin": (np.dtype(dtype), counts["tokens"]),
            "sentences.idx": (np.dtype("<i8"), counts["sentences"] + 1),
            "documents.idx": (np.dtype("<i8"), counts["documents"] + 1),
        }
        arrays = {name: _mapped(folder / name, *size) for name, size in sizes.items()}
        expected = manifest["tokenizer"]["fingerprint"]
        assert dtype in DTYPES
    except (KeyError, TypeError, AssertionError) as error:
        raise DataError(f"{folder / 'manifest.json'} is damaged ({error!r}); prepare the store again.") from None
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise DataError(f"{path} is missing; copy the store again.")
    try:
        tokenizer = load_plain(path)
    except Exception as error:  # tokenizers raises bare Exception for a broken file
        raise DataError(f"{path} cannot be read ({error}); copy the store again.") from None
    if tokenizer_fingerprint(tokenizer) != expected:
        raise DataError(f"{path} is not the tokenizer that made this store; copy the store again.")
    return Store(
        folder=folder,
        manifest=manifest,
        tokens=arrays["tokens.bin"],
        sentences=arrays["sentences.idx"],
        documents=arrays["documents.idx"],
        tokenizer=tokenizer,
        vocabulary=describe(tokenizer),
    )


def _mapped(path: Path, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    expected = count * dtype.itemsize
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path} is missing; copy the store again.") from None
    if size != expected:
        kind = "truncated" if size < expected else "too long"
        raise DataError(f"{path} is {kind}: {size} bytes, the manifest says {expected}; copy the store again.")
    # A plain array over the map: slicing a numpy.memmap costs several times as much.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
