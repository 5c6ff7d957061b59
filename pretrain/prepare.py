"""Files of text to a token store: plan, tokenizer, shards in parallel, assembly.

Work lies in a hidden folder beside the target until it is done. Each finished shard there is named after everything
that decides its content, so an interrupted run goes on where it stopped and a changed file costs only its own shards.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from contract.errors import DataError, Failure, Interrupted, UsageError
from contract.storage import read_json, sha256_file, write_atomic, write_json
from pretrain.assembly import Split, assemble
from pretrain.cleaning import clean
from pretrain.documents import read_documents
from pretrain.progress import counting, say, waiting
from pretrain.sentences import split_document
from pretrain.shards import Recipe, Shard, make_shard, shard_folder
from pretrain.sources import Corpus, Reading, find_corpus
from pretrain.store import Store, open_store
from pretrain.tokenizer import MadeTokenizer, TokenizerPlan, load_from_folder, train_tokenizer
from pretrain.vocabulary import Vocabulary, describe, for_sentences, tokenizer_fingerprint

SAMPLE_UNITS = 64
"""Places of the corpus from which the sample for the tokenizer is taken."""
PROBE_CHARACTERS = 1 << 18
"""Characters of the sample on which unknown tokens are counted before the long work begins."""
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareSettings:
    """Everything that decides a store, except the texts."""

    tokenizer: TokenizerPlan
    reading: Reading = field(default_factory=Reading)
    min_characters: int = 10
    """Documents with fewer characters after cleaning are dropped."""
    near_duplicates: bool = False
    """Drop documents that an earlier one almost equals, too; exact duplicates always go."""
    heldout: float = 0.01
    """Share of documents that is held out."""
    seed: int = 0
    """Decides which documents are held out."""
    sample_mb: float = 32.0
    """Text from which a tokenizer is trained, in MB, taken evenly from the whole corpus."""
    max_unknown: float = 0.01
    """Largest share of unknown tokens that is accepted."""

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise UsageError(f"--heldout {self.heldout} is not a share in [0, 1).")
        if self.sample_mb <= 0:
            raise UsageError(f"--sample-mb {self.sample_mb} leaves no text to train a tokenizer on.")


def prepare(paths: list[Path], out: Path, settings: PrepareSettings, *, workers: int, overwrite: bool = False) -> Store:
    """Make a store of the texts under ``paths`` and open it.

    Args:
        paths: files and folders.
        out: folder of the store.
        settings: what decides the result.
        workers: processes; the result does not depend on it.
        overwrite: replace an existing folder.

    Raises:
        UsageError: wrong arguments.
        DataError: the input cannot be used; the message has the file.
        Failure: the disk is full or a worker died. Finished work is kept.
        Interrupted: Ctrl-C. Finished work is kept.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers} is not a positive number.")
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists already; pass --overwrite to replace it, or another --out.")
    if out.exists() and not (out / "tokens.bin").is_file():
        raise UsageError(f"{out} is not a store and is not replaced; choose another --out.")
    corpus = find_corpus(paths, settings.reading)
    if not corpus.units:
        raise DataError(f"the {len(corpus.files)} files under the given paths are empty.")
    _tell(corpus)
    work = out.resolve().parent / f".{out.resolve().name}.prepare"
    with _explained(work, out):
        work.mkdir(parents=True, exist_ok=True)
        try:
            shards = _work(corpus, out, work, settings, workers)
        except BaseException:
            if not any(work.iterdir()):
                work.rmdir()  # nothing worth keeping
            raise
        shutil.rmtree(work)
    store = open_store(out)
    counts, splits = store.manifest["counts"], store.manifest["splits"]
    say(
        f"{out}: {counts['documents']:,} documents, {counts['sentences']:,} sentences, {counts['tokens']:,} tokens "
        f"from {shards} shards; {splits['heldout']['documents'][1] - splits['heldout']['documents'][0]:,} documents "
        f"held out; vocabulary of {store.vocabulary.size:,}."
    )
    return store


def _work(corpus: Corpus, out: Path, work: Path, settings: PrepareSettings, workers: int) -> int:
    with _pool(workers) as pool:
        made = _tokenizer(pool, corpus, work, settings)
        shards, recipe = _shards(pool, workers, corpus, work, settings, made)
    counts = sum((shard.counts() for shard in shards), Counter[str]())
    _refuse_unknown(counts["unknown_tokens"], counts["tokens"], settings, "the corpus")
    about = {
        "tokenizer": {
            "source": settings.tokenizer.source if settings.tokenizer.kind else "folder",
            "family": made.family,
            "kind": made.vocabulary.kind,
            "vocab_size": made.vocabulary.size,
            "fingerprint": recipe.tokenizer_sha256,
            "notes": list(made.notes),
        },
        "settings": {
            "min_characters": settings.min_characters,
            "near_duplicates": settings.near_duplicates,
            "heldout": settings.heldout,
            "seed": settings.seed,
            "document_per_line": settings.reading.document_per_line,
            "bad_files": settings.reading.bad_files,
        },
        "input": {
            "files": len(corpus.files),
            "bytes": corpus.size_bytes,
            "files_skipped": sorted(Path(name).name for name in corpus.skipped),
            "files_ignored": len(corpus.ignored),
        },
    }
    with counting("assembling", counts["tokens"] / 1e6, "M tokens") as advance:
        assemble(
            shards,
            out,
            work,
            split=Split(share=settings.heldout, seed=settings.seed),
            near_duplicates=settings.near_duplicates,
            dtype=recipe.dtype,
            tokenizer_json=made.tokenizer.to_str(pretty=True),
            about=about,
            report=lambda tokens: advance(tokens / 1e6),
        )
    return len(shards)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chosen:
    tokenizer: Tokenizer
    family: str
    vocabulary: Vocabulary
    notes: tuple[str, ...]


def _tokenizer(pool: Executor, corpus: Corpus, work: Path, settings: PrepareSettings) -> _Chosen:
    """Load or train the tokenizer, in a worker; a trained one is kept for a run that goes on."""
    path, about = work / "tokenizer.json", work / "tokenizer.about.json"
    key = hashlib.sha256(
        repr((settings.tokenizer, settings.reading, settings.sample_mb, [unit.key() for unit in corpus.units])).encode()
    ).hexdigest()
    reusable = settings.tokenizer.kind is not None and about.is_file() and path.is_file()
    known = read_json(about, DataError) if reusable else {}
    if known.get("key") != key or known.get("sha256") != sha256_file(path):
        doing = "training the tokenizer" if settings.tokenizer.kind else "reading the tokenizer"
        with waiting(doing):
            made, unknown, tokens = pool.submit(_make_tokenizer, corpus, settings).result()
        _refuse_unknown(unknown, tokens, settings, "a sample of the corpus")
        write_atomic(path, made["json"])
        write_json(about, {"key": key, "sha256": sha256_file(path), "family": made["family"], "notes": made["notes"]})
        known = read_json(about, DataError)
    for note in known["notes"]:
        say(f"tokenizer: {note}")
    tokenizer = Tokenizer.from_file(str(path))
    return _Chosen(
        tokenizer=tokenizer, family=known["family"], vocabulary=describe(tokenizer), notes=tuple(known["notes"])
    )


def _make_tokenizer(corpus: Corpus, settings: PrepareSettings) -> tuple[dict[str, Any], int, int]:
    """(tokenizer as JSON with notes, unknown tokens, tokens) on a sample; runs in a worker."""
    if multiprocessing.parent_process() is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"  # the other workers have nothing to do yet
    trains = settings.tokenizer.kind is not None
    sentences = list(_sample(corpus, settings, megabytes=settings.sample_mb if trains else PROBE_CHARACTERS / 1e6))
    made: MadeTokenizer
    if not trains:
        made = load_from_folder(Path(settings.tokenizer.source))
    else:
        if not sentences:
            raise DataError("no text is left after cleaning from which a tokenizer could be trained.")
        made = train_tokenizer(settings.tokenizer, sentences)
    made.tokenizer.no_padding()
    made.tokenizer.no_truncation()
    vocabulary = describe(made.tokenizer)
    unknown = tokens = characters = 0
    encoder, _ = for_sentences(made.tokenizer)
    for sentence in sentences[:: max(1, sum(map(len, sentences)) // PROBE_CHARACTERS)]:
        ids = encoder.encode(sentence, add_special_tokens=False).ids
        tokens += len(ids)
        unknown += ids.count(vocabulary.unk_id) if vocabulary.unk_id is not None else 0
        characters += len(sentence)
        if characters > PROBE_CHARACTERS:
            break
    if multiprocessing.parent_process() is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    as_json = made.tokenizer.to_str(pretty=True)
    return {"json": as_json, "family": made.family, "notes": list(made.notes)}, unknown, tokens


def _sample(corpus: Corpus, settings: PrepareSettings, *, megabytes: float) -> Iterator[str]:
    """Sentences from evenly spaced places of the corpus, the same for the same input."""
    step = max(1, -(-len(corpus.units) // SAMPLE_UNITS)) if corpus.size_bytes > megabytes * 1e6 else 1
    units = corpus.units[::step]
    share = megabytes * 1e6 / len(units)
    counts: Counter[str] = Counter()
    for unit in units:
        taken = 0.0
        for document in read_documents(unit, settings.reading, counts):
            lines = clean(document, counts)
            if sum(map(len, lines)) < max(1, settings.min_characters):
                continue
            for sentence in split_document(lines):
                taken += len(sentence.encode())
                yield sentence.strip()
            if taken >= share:
                break


def _refuse_unknown(unknown: int, tokens: int, settings: PrepareSettings, where: str) -> None:
    share = unknown / max(1, tokens)
    if share > settings.max_unknown:
        remedy = (
            "raise --vocab-size or use --tokenizer bpe"
            if settings.tokenizer.kind
            else "use a tokenizer that was made for this language"
        )
        raise DataError(
            f"{share:.1%} of the tokens of {where} are unknown to the tokenizer, at most {settings.max_unknown:.1%} "
            f"is accepted: {remedy}, or pass a larger --max-unknown."
        )


def _shards(
    pool: Executor, workers: int, corpus: Corpus, work: Path, settings: PrepareSettings, made: _Chosen
) -> tuple[list[Shard], Recipe]:
    """Make the shards that are not there yet."""
    recipe = Recipe(
        reading=settings.reading,
        min_characters=settings.min_characters,
        near_duplicates=settings.near_duplicates,
        tokenizer_path=work / "tokenizer.json",
        tokenizer_sha256=tokenizer_fingerprint(made.tokenizer),
        unknown_id=made.vocabulary.unk_id,
        dtype="uint16" if made.vocabulary.size <= 2**16 else "uint32",
    )
    folders = [shard_folder(work, number, unit, recipe) for number, unit in enumerate(corpus.units)]
    for stale in work.iterdir():
        if stale.is_dir() and stale not in set(folders):
            shutil.rmtree(stale)
    todo = [(unit, folder) for unit, folder in zip(corpus.units, folders, strict=True) if not folder.is_dir()]
    if len(todo) < len(folders):
        say(f"going on: {len(folders) - len(todo)} of {len(folders)} shards are there from an earlier run.")
    with counting("tokenising", sum(unit.size_bytes for unit, _ in todo) / 1e6, "MB") as advance:
        running: dict[Future[Counter[str]], int] = {}
        queue = iter(todo)
        while True:
            # A few more than the workers, so that none waits; not all, so that an error or Ctrl-C stops at once.
            for unit, folder in itertools.islice(queue, 2 * workers - len(running)):
                running[pool.submit(make_shard, unit, recipe, folder)] = unit.size_bytes
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                advance(running.pop(future) / 1e6)
    return [Shard(folder) for folder in folders], recipe


class _Here(Executor):
    """Does the work in this process, at once: one worker needs no second process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Worker processes that are ended at once, not waited for, when the block ends with an error."""
    if workers == 1:
        yield _Here()
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        with _interrupts_later():
            wait([pool.submit(os.getpid) for _ in range(workers)])  # each starts a worker
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
            process.join()
        raise
    pool.shutdown()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back. Processes started meanwhile inherit this, so that a half-imported one prints no traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # or it starts with the first worker, and lets Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Set up a worker process: one thread for tokenisation, silent on Ctrl-C, gone when its parent is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


@contextmanager
def _explained(work: Path, out: Path) -> Iterator[None]:
    """Turn what can go wrong with the machine into sentences; the work folder stays for the next run."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; {out} was not written. Finished shards are kept in {work}: the same command goes on there."
        ) from None
    except BrokenProcessPool:
        raise Failure(
            "a worker process was killed, perhaps for lack of memory; finished shards are kept: "
            "run the same command again with fewer --workers."
        ) from None
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise Failure(
            f"no space left for {work.parent} ({error.strerror}); {out} was not written. Finished shards are kept: "
            "free some space (prepare needs up to twice the size of the store) and run the same command again."
        ) from None


def _tell(corpus: Corpus) -> None:
    say(f"{len(corpus.files):,} files, {corpus.size_bytes / 1e6:,.1f} MB, {len(corpus.units):,} units.")
    if corpus.ignored:
        say(f"{len(corpus.ignored)} files with other endings are ignored, such as {Path(corpus.ignored[0]).name}.")
    if corpus.skipped:
        say(f"{len(corpus.skipped)} binary or UTF-16 files are skipped, such as {Path(corpus.skipped[0]).name}.")
