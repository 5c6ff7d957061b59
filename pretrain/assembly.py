"""Shards to store: duplicates out, documents split, three files and a manifest written in one step.

Everything here is streamed in input order, so the store does not depend on the number of workers, nor on how the
input was cut into units. Documents of the training split come first, then the held-out ones; both keep input order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from contract.errors import DataError
from contract.storage import replace_folder, write_json
from pretrain.cleaning import COUNTS
from pretrain.draws import hashed, key_of
from pretrain.shards import Shard
from pretrain.signatures import WIDTH, mark_near_duplicates
from pretrain.store import FORMAT_VERSION, HELDOUT, TRAIN, fingerprint_of

ROWS_IN_MEMORY = 1 << 20
"""Documents whose hashes are sorted at once."""
TOKENS_IN_MEMORY = 1 << 22
"""Tokens that are copied at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Which documents are held out."""

    share: float
    """Share of the documents, in [0, 1)."""
    seed: int


class Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self.handle: BinaryIO = path.open("wb")
        self.sha256 = hashlib.sha256()

    def write(self, values: npt.NDArray[Any]) -> None:
        """Append the array's bytes."""
        data = np.ascontiguousarray(values).tobytes()
        self.handle.write(data)
        self.sha256.update(data)


def assemble(
    shards: Sequence[Shard],
    target: Path,
    work: Path,
    *,
    split: Split,
    near_duplicates: bool,
    dtype: str,
    tokenizer_json: str,
    about: Mapping[str, Any],
    report: Callable[[int], None] = lambda tokens: None,
) -> None:
    """Write the store of finished shards to ``target``, replacing what is there.

    Args:
        shards: finished shards in input order.
        target: folder of the store.
        work: folder for intermediate files.
        split: which documents to hold out.
        near_duplicates: whether to drop near duplicates; the shards then hold signatures.
        dtype: numpy name of the tokens' type.
        tokenizer_json: content of ``tokenizer.json``.
        about: further entries of the manifest.
        report: called with the number of tokens that were copied since the last call.

    Raises:
        DataError: no document is left.
    """
    counts = sum((shard.counts() for shard in shards), Counter[str]())
    sizes = [len(shard.documents()) for shard in shards]
    alive = _flags(work / "alive.bin", sum(sizes))
    counts["exact_duplicates"] = _mark_duplicates(shards, alive)
    if near_duplicates and len(alive):
        counts["near_duplicates"] = mark_near_duplicates(_all_signatures(shards, work), alive, ROWS_IN_MEMORY)
    if not alive.any():
        dropped = ", ".join(f"{counts[name]} {name}".replace("_", " ") for name in COUNTS if counts[name])
        raise DataError(f"no document is left after cleaning ({dropped or 'the files are empty'}).")
    heldout = _mark_heldout(shards, alive, split, work)
    with replace_folder(target) as fresh:
        (fresh / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
        files = {name: Hashed(fresh / name) for name in ("tokens.bin", "sentences.idx", "documents.idx")}
        totals = {"documents": 0, "sentences": 0, "tokens": 0}
        for file in (files["sentences.idx"], files["documents.idx"]):
            file.write(np.zeros(1, dtype="<i8"))
        splits = {}
        for name, wanted in ((TRAIN, False), (HELDOUT, True)):
            first = dict(totals)
            begin = 0
            for shard, size in zip(shards, sizes, strict=True):
                chosen = alive[begin : begin + size] & (heldout[begin : begin + size] == wanted)
                begin += size
                for part in _pieces(shard, np.asarray(chosen), dtype):
                    _append(files, totals, *part)
                    report(len(part[0]))
            splits[name] = {
                "documents": [first["documents"], totals["documents"]],
                **{what: totals[what] - first[what] for what in ("sentences", "tokens")},
            }
        for file in files.values():
            file.handle.close()
        sha256 = {name: file.sha256.hexdigest() for name, file in files.items()}
        sha256["tokenizer.json"] = hashlib.sha256(tokenizer_json.encode()).hexdigest()
        manifest = {
            "format_version": FORMAT_VERSION,
            "fingerprint": fingerprint_of(sha256, splits),
            "dtype": dtype,
            "counts": totals,
            "splits": splits,
            "cleaning": {name: counts[name] for name in COUNTS},
            "unknown_share": counts["unknown_tokens"] / max(1, counts["tokens"]),
            "cjk_share": counts["cjk_characters"] / max(1, counts["characters"]),
            **about,
            "files": sha256,
        }
        write_json(fresh / "manifest.json", manifest)
        for path in fresh.iterdir():
            path.chmod(0o444)


def _flags(path: Path, count: int) -> npt.NDArray[np.bool_]:
    """(count,) true values in a file: one byte a document would be too much memory for a large corpus."""
    if count == 0:
        return np.ones(0, dtype=bool)
    flags = np.memmap(path, dtype=bool, mode="w+", shape=(count,))
    flags[:] = True
    return flags


def _hashes(shards: Sequence[Shard]) -> Iterator[npt.NDArray[np.uint64]]:
    for shard in shards:
        yield shard.documents()["hash"]


def _mark_duplicates(shards: Sequence[Shard], alive: npt.NDArray[np.bool_]) -> int:
    """Clear ``alive`` for every document whose hash an earlier one has; returns how many.

    Hashes are sorted in buckets of about ``ROWS_IN_MEMORY``; a bucket holds all documents of some hash values.
    """
    passes = max(1, -(-len(alive) // ROWS_IN_MEMORY))
    total = 0
    for turn in range(passes):
        numbers, hashes, begin = [np.empty(0, np.int64)], [np.empty((0, 2), np.uint64)], 0
        for part in _hashes(shards):
            chosen = np.flatnonzero(part[:, 0] % np.uint64(passes) == turn)
            numbers.append(begin + chosen)
            hashes.append(part[chosen])
            begin += len(part)
        number, value = np.concatenate(numbers), np.concatenate(hashes)
        order = np.lexsort((number, value[:, 1], value[:, 0]))
        repeated = (value[order][1:] == value[order][:-1]).all(axis=1)
        alive[number[order][1:][repeated]] = False
        total += int(repeated.sum())
    return total


def _all_signatures(shards: Sequence[Shard], work: Path) -> npt.NDArray[np.uint32]:
    path = work / "signatures.bin"
    with path.open("wb") as handle:
        for shard in shards:
            handle.write(shard.signatures(WIDTH).tobytes())
    return np.memmap(path, dtype="<u4", mode="r").reshape(-1, WIDTH)


def _mark_heldout(
    shards: Sequence[Shard], alive: npt.NDArray[np.bool_], split: Split, work: Path
) -> npt.NDArray[np.bool_]:
    """(documents,) whether a document is held out: its hash, mixed with the seed, is below the share.

    So a document's split depends on its content alone. Of two or more documents at least one is held out (if the share
    is not zero) and at least one is not.
    """
    heldout = _flags(work / "heldout.bin", len(alive))
    key = key_of(split.seed, "heldout")
    limit = np.uint64(min(int(split.share * 2**64), 2**64 - 1))
    lowest, highest, begin = (2**64, -1), (-1, -1), 0
    for part in _hashes(shards):
        values = hashed(key, part[:, 0])
        living = np.flatnonzero(alive[begin : begin + len(part)])
        heldout[begin : begin + len(part)] = values < limit
        if len(living):
            smallest, largest = living[values[living].argmin()], living[values[living].argmax()]
            lowest = min(lowest, (int(values[smallest]), begin + int(smallest)))
            highest = max(highest, (int(values[largest]), begin + int(largest)))
        begin += len(part)
    if split.share > 0:
        heldout[lowest[1]] = True
    heldout[highest[1]] = False
    return heldout


def _pieces(
    shard: Shard, chosen: npt.NDArray[np.bool_], dtype: str
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]:
    """The chosen documents of a shard as (tokens, sentence lengths, sentences per document), in bounded pieces."""
    documents, lengths, tokens = shard.documents(), shard.sentence_lengths(), shard.tokens(dtype)
    token_ends = np.cumsum(documents["tokens"], dtype=np.int64)
    sentence_ends = np.cumsum(documents["sentences"], dtype=np.int64)
    begin = 0
    while begin < len(documents):
        start = int(token_ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(token_ends, start + TOKENS_IN_MEMORY, side="right")))
        keep = chosen[begin:end]
        if keep.any():
            here, sentence_start = documents[begin:end], int(sentence_ends[begin - 1]) if begin else 0
            yield (
                tokens[start : token_ends[end - 1]][np.repeat(keep, here["tokens"].astype(np.int64))],
                lengths[sentence_start : sentence_ends[end - 1]][np.repeat(keep, here["sentences"])],
                here["sentences"][keep],
            )
        begin = end


def _append(
    files: Mapping[str, Hashed],
    totals: dict[str, int],
    tokens: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
    sentences: npt.NDArray[Any],
) -> None:
    files["tokens.bin"].write(tokens)
    files["sentences.idx"].write(totals["tokens"] + np.cumsum(lengths, dtype="<i8"))
    files["documents.idx"].write(totals["sentences"] + np.cumsum(sentences, dtype="<i8"))
    totals["tokens"] += len(tokens)
    totals["sentences"] += len(lengths)
    totals["documents"] += len(sentences)
