"""The whole way from files to a store: what is in it, and that nothing but the texts and settings decides it."""

import errno
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from contract.errors import DataError, Failure, UsageError
from contract.storage import sha256_file
from contract.tokenizer_files import save_tokenizer
from pretrain import assembly, shards, sources
from pretrain.prepare import prepare
from pretrain.sources import Reading
from pretrain.store import HELDOUT, TRAIN, Store, open_store
from pretrain.tokenizer import KINDS, TokenizerKind
from pretrain.vocabulary import tokenizer_fingerprint
from tests.pretrain.stores import CASES, SHARED, TEXT, prepared, settings, shared, tiny_tokenizer

ROOT = Path(__file__).parents[2]


def story(count: int, seed: int = 0) -> list[str]:
    """Documents of several lines and sentences; the number makes each one new."""
    draw = random.Random(seed)
    words = [word for sentence in TEXT for word in sentence.split()]
    return [
        "\n".join(
            " ".join([f"Story {n * 7919}:", *draw.choices(words, k=draw.randint(3, 20))]) + "."
            for _ in range(draw.randint(1, 5))
        )
        for n in range(count)
    ]


def decoded(store: Store, split: str) -> list[str]:
    first, last = store.split_documents(split)
    bounds = store.sentences[store.documents[first : last + 1]].tolist()
    return [store.tokenizer.decode(store.tokens[a:b].tolist()) for a, b in itertools.pairwise(bounds)]


def content(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in folder.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_holds_the_tokens_of_each_document_by_sentence(tmp_path: Path, kind: TokenizerKind) -> None:
    documents = ["One story. Two stories.\nThird line!", "天地玄黄。宇宙洪荒。", "Only one sentence here"]
    store = prepared(tmp_path, "\n\n".join(documents), kind, heldout=0.0, max_unknown=1.0)
    assert np.diff(store.documents).tolist() == [3, 2, 1]
    oracle = Tokenizer.from_file(str(tmp_path / "store" / "tokenizer.json"))
    expected = [
        oracle.encode(text, add_special_tokens=False).ids
        for text in ("One story. Two stories. Third line!", "天地玄黄。宇宙洪荒。", "Only one sentence here")
    ]
    assert store.tokens.tolist() == [i for ids in expected for i in ids]
    assert store.sentences[store.documents].tolist() == [0, *np.cumsum([len(ids) for ids in expected]).tolist()]
    second = store.tokens[store.sentences[1] : store.sentences[2]].tolist()
    assert oracle.decode(second).strip().lower() == "two stories."
    assert store.manifest["counts"] == {"documents": 3, "sentences": 6, "tokens": len(store.tokens)}
    assert store.manifest["dtype"] == "uint16"
    store.verify()


def test_only_the_texts_and_settings_decide_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = story(120)
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("\n\n".join(documents[number * 40 : number * 40 + 40]))
    chosen = settings(heldout=0.1, near_duplicates=True)
    prepare([tmp_path / "in"], tmp_path / "one", chosen, workers=1)
    reference = content(tmp_path / "one")
    prepare([tmp_path / "in"], tmp_path / "two", chosen, workers=2)
    assert content(tmp_path / "two") == reference
    monkeypatch.setattr(sources, "UNIT_BYTES", (700, 900))
    monkeypatch.setattr(shards, "BUFFER_CHARACTERS", 300)
    monkeypatch.setattr(assembly, "TOKENS_IN_MEMORY", 100)
    monkeypatch.setattr(assembly, "ROWS_IN_MEMORY", 7)
    store = prepare([tmp_path / "in"], tmp_path / "units", chosen, workers=1)
    assert content(tmp_path / "units") == reference
    assert store.fingerprint == open_store(tmp_path / "one").fingerprint
    other = prepare([tmp_path / "in"], tmp_path / "seed", settings(heldout=0.1, seed=1), workers=1)
    assert other.fingerprint != store.fingerprint


def test_documents_keep_their_order_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "UNIT_BYTES", (700, 900))
    documents = story(80)
    store = prepared(tmp_path, "\n\n".join(documents), heldout=0.2)
    texts = [" ".join(document.split("\n")) for document in documents]
    found = {split: [text.strip() for text in decoded(store, split)] for split in (TRAIN, HELDOUT)}
    assert sorted(found[TRAIN] + found[HELDOUT]) == sorted(texts)
    for part in found.values():
        assert part == [text for text in texts if text in set(part)]
    assert 4 < len(found[HELDOUT]) < 32


def test_what_is_held_out_depends_on_content_alone(tmp_path: Path) -> None:
    documents = story(60)
    shuffled = random.Random(5).sample(documents, 60)
    held = [
        set(decoded(prepared(tmp_path / name, "\n\n".join(texts), heldout=0.2), HELDOUT))
        for name, texts in (("a", documents), ("b", shuffled), ("c", [*shuffled, *story(30, seed=9)]))
    ]
    assert held[0] == held[1]
    assert held[0] <= held[2]


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(1, 0.5, (1, 0)), (2, 0.001, (1, 1)), (2, 0.999, (1, 1)), (3, 0.0, (3, 0)), (9, 0.999, (1, 8))],
)
def test_small_corpora_keep_something_to_train_on_and_to_hold_out(
    tmp_path: Path, count: int, share: float, expected: tuple[int, int]
) -> None:
    store = prepared(tmp_path, "\n\n".join(story(count)), heldout=share)
    assert tuple(np.diff(store.split_documents(split))[0] for split in (TRAIN, HELDOUT)) == expected


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(numbers=st.lists(st.integers(0, 9), min_size=1, max_size=40), rows=st.integers(1, 50))
def test_of_equal_documents_the_first_stays(tmp_path: Path, numbers: list[int], rows: int) -> None:
    folder = tmp_path / "_".join(map(str, numbers))
    shutil.rmtree(folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "ROWS_IN_MEMORY", rows)
        patch.setattr(sources, "UNIT_BYTES", (64, 128))
        # Cleaning comes first: white space does not make a document new.
        texts = [f"The number\u200b is {'  ' * (place % 2)} {n}." for place, n in enumerate(numbers)]
        store = prepared(folder, "\n\n".join(texts), heldout=0.0, plan={"vocab_size": 300})
    assert [int(text.split()[-1][:-1]) for text in decoded(store, TRAIN)] == list(dict.fromkeys(numbers))
    assert store.manifest["cleaning"]["exact_duplicates"] == len(numbers) - len(set(numbers))
    assert store.manifest["cleaning"]["documents_read"] == len(numbers)


def test_near_duplicates_go_only_when_asked(tmp_path: Path) -> None:
    long = " ".join(f"word{n}" for n in range(400))
    texts = [long, long.replace("word7 ", "word8 "), *story(20)]
    kept = prepared(tmp_path / "a", "\n\n".join(texts), heldout=0.0)
    dropped = prepared(tmp_path / "b", "\n\n".join(texts), heldout=0.0, near_duplicates=True)
    assert kept.manifest["counts"]["documents"] == 22
    assert dropped.manifest["counts"]["documents"] == 21
    assert dropped.manifest["cleaning"]["near_duplicates"] == 1
    assert "word7 " in decoded(dropped, TRAIN)[0]


def test_tiny_and_empty_documents_are_dropped_and_counted(tmp_path: Path) -> None:
    store = prepared(tmp_path, "ok\n\n\u200b\n\nlong enough text\n\n字字\n", heldout=0.0)
    assert store.manifest["counts"]["documents"] == 1
    cleaning = store.manifest["cleaning"]
    assert (cleaning["documents_read"], cleaning["tiny_documents"], cleaning["empty_documents"]) == (4, 2, 1)
    assert cleaning["zero_width_characters"] == 1


@pytest.mark.parametrize("text", ["", "\n\n \n", "a\n\nb"])
def test_an_empty_corpus_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"empty|no text is left after cleaning"):
        prepared(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"], "nothing is left behind"


def test_one_document_is_enough(tmp_path: Path) -> None:
    store = prepared(tmp_path, "Just one document. It has two sentences.")
    assert store.manifest["splits"]["train"]["documents"] == [0, 1]


def test_text_that_the_tokenizer_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path / "model", tiny_tokenizer("wordpiece"), max_length=64, type_vocab_size=2)
    with pytest.raises(
        DataError, match=r"\d+\.\d% of the tokens of a sample of the corpus are unknown .* --max-unknown"
    ):
        prepared(tmp_path / "a", "Очень длинный русский текст без знакомых букв.", str(tmp_path / "model"))
    store = prepared(tmp_path / "b", "The light. Свет.", str(tmp_path / "model"), max_unknown=0.9)
    assert 0.1 < store.manifest["unknown_share"] < 0.9


def test_a_model_folders_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("unigram")
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path / "model", tokenizer, max_length=64, type_vocab_size=2)
    (tmp_path / "model" / "config.json").write_text('{"model_type": "albert"}')
    store = prepared(tmp_path, "the light of the sea.", str(tmp_path / "model"))
    assert store.family == "albert"
    assert tokenizer_fingerprint(store.tokenizer) == tokenizer_fingerprint(tokenizer)
    store.require_tokenizer(tokenizer, Path("checkpoint"))
    with pytest.raises(
        DataError,
        match=r"the tokenizer of checkpoint \(330 tokens\) is not the one that made .* --tokenizer checkpoint",
    ):
        store.require_tokenizer(tiny_tokenizer("bpe"), Path("checkpoint"))


def test_special_strings_of_the_text_are_text_in_the_store(tmp_path: Path) -> None:
    """B47."""
    text = shared(CASES / "B47_literal_special_tokens.txt").read_text()
    for kind in KINDS:
        store = prepared(tmp_path / kind, text, kind, heldout=0.0, plan={"vocab_size": 400})
        assert not store.vocabulary.special[store.tokens].any()


def test_other_inputs_and_bad_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(
        "".join(json.dumps({"body": text}) + "\n" for text in story(5)) + "{broken\n"
    )
    (tmp_path / "in" / "b.jsonl").write_bytes(b'{"body": "caf\xe9 of the lighthouse"}\n')
    (tmp_path / "in" / "c.txt").write_bytes(b"\x00binary")
    reading = Reading(text_field="body", bad_files="skip")
    with pytest.raises(DataError, match=r"c\.txt is binary"):
        prepare([tmp_path / "in"], tmp_path / "store", settings(reading=Reading(text_field="body")), workers=1)
    store = prepare([tmp_path / "in"], tmp_path / "store", settings(reading=reading, heldout=0.0), workers=1)
    cleaning = store.manifest["cleaning"]
    assert store.manifest["counts"]["documents"] == 5
    assert (cleaning["malformed_records"], cleaning["undecodable_documents"]) == (1, 1)
    assert store.manifest["input"]["files_skipped"] == ["c.txt"]


def test_an_existing_folder_is_replaced_only_when_told_and_only_if_it_is_a_store(tmp_path: Path) -> None:
    first = prepared(tmp_path, "\n\n".join(story(5)))
    with pytest.raises(UsageError, match="store exists already; pass --overwrite"):
        prepared(tmp_path, "\n\n".join(story(6)))
    (tmp_path / "text.txt").write_text("\n\n".join(story(6)))
    store = prepare([tmp_path / "text.txt"], tmp_path / "store", settings(), workers=1, overwrite=True)
    assert store.fingerprint != first.fingerprint
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not a store and is not replaced"):
        prepare([tmp_path / "text.txt"], tmp_path / "mine", settings(), workers=1, overwrite=True)


def test_a_damaged_or_foreign_store_is_named(tmp_path: Path) -> None:
    prepared(tmp_path, "\n\n".join(story(30)))
    folder = tmp_path / "store"

    def broken(name: str, change: object) -> Path:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "copy")
        path = tmp_path / "copy" / name
        path.chmod(0o644)
        data = path.read_bytes()
        path.write_bytes(change(data))  # type: ignore[operator]
        return tmp_path / "copy"

    for name in ("tokens.bin", "sentences.idx", "documents.idx"):
        with pytest.raises(DataError, match=rf"{name} is truncated: \d+ bytes, the manifest says \d+"):
            open_store(broken(name, lambda data: data[:-2]))
        with pytest.raises(DataError, match=rf"{name} is too long"):
            open_store(broken(name, lambda data: data + b"\0"))
    with pytest.raises(DataError, match="does not match the manifest: it was changed"):
        open_store(broken("tokens.bin", lambda data: bytes([data[0] ^ 1]) + data[1:])).verify()
    with pytest.raises(DataError, match="is not the tokenizer that made this store"):
        open_store(broken("tokenizer.json", lambda _: tiny_tokenizer("unigram").to_str().encode()))
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be read"):
        open_store(broken("tokenizer.json", lambda data: data[:99]))
    with pytest.raises(DataError, match="store format 99; this program reads 1"):
        open_store(broken("manifest.json", lambda data: data.replace(b'"format_version": 1', b'"format_version": 99')))
    with pytest.raises(DataError, match=r"manifest\.json' is damaged|manifest\.json is damaged"):
        open_store(broken("manifest.json", lambda data: data.replace(b'"dtype"', b'"type"')))
    (broken("tokens.bin", bytes) / "tokens.bin").unlink()
    with pytest.raises(DataError, match=r"tokens\.bin is missing"):
        open_store(tmp_path / "copy")
    with pytest.raises(DataError, match="is not a folder; a store is made by: robal pretrain prepare"):
        open_store(tmp_path / "nowhere")


def test_store_files_are_read_only(tmp_path: Path) -> None:
    store = prepared(tmp_path, "\n\n".join(story(3)))
    assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o444}
    with pytest.raises(ValueError, match="read-only"):
        store.tokens[0] = 1


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(tiny_tokenizer("wordpiece").to_str())
    vocab = tokenizer.get_vocab()
    tokenizer.model = models.WordPiece(vocab | {f"token{n}": n for n in range(len(vocab), 70_000)}, unk_token="[UNK]")
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path / "model", tokenizer, max_length=64, type_vocab_size=1)
    store = prepared(tmp_path, "The light is token69999.", str(tmp_path / "model"), max_unknown=0.5)
    assert store.tokens.dtype == np.uint32
    assert store.tokens.max() == 69_999


def command(folder: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "robal", "pretrain", "prepare", str(folder / "in"), "--out", str(folder / "store")),
        *("--vocab-size", "330", "--heldout", "0.1", *more),
    ]


def corpus(folder: Path, files: int) -> None:
    """Files of about 100 kB; each is a unit."""
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        texts = [f"{document} Turn {number}." for document in story(250)]
        (folder / "in" / f"{number:02}.txt").write_text("\n\n".join(texts), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")
def test_a_killed_run_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus(tmp_path / "killed", 30)
    corpus(tmp_path / "whole", 30)
    run = subprocess.Popen(
        command(tmp_path / "killed", "--workers", "2"), cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    )
    work = tmp_path / "killed" / ".store.prepare"
    children: set[int] = set()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and run.poll() is None:
        if len(list(work.glob("0*-*/counts.json"))) >= 2:
            break
        time.sleep(0.02)
    assert run.poll() is None, "it finished before it could be killed"
    children = {int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()}
    run.kill()
    run.wait()
    assert not (tmp_path / "killed" / "store").exists()
    gone = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < gone:
        time.sleep(0.05)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()], "workers leave with their parent"
    finished = {path: path.stat().st_mtime_ns for path in work.glob("0*-*/tokens.bin")}
    again = subprocess.run(command(tmp_path / "killed", "--workers", "1"), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert f"going on: {len(finished)} of " in again.stderr
    assert not work.exists()
    whole = subprocess.run(command(tmp_path / "whole", "--workers", "2"), cwd=ROOT, capture_output=True, text=True)
    assert whole.returncode == 0, whole.stderr
    assert content(tmp_path / "killed" / "store") == content(tmp_path / "whole" / "store")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a POSIX signal here")
def test_ctrl_c_ends_at_once_with_one_sentence(tmp_path: Path) -> None:
    corpus(tmp_path, 30)
    run = subprocess.Popen(
        command(tmp_path, "--workers", "2"), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    work = tmp_path / ".store.prepare"
    while not list(work.glob("0*-*/counts.json")):
        assert run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted;" in errors
    assert "the same command goes on there" in errors
    assert not (tmp_path / "store").exists()


def test_finished_shards_are_used_again_and_changed_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a kill between the shards and the store."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.txt").write_text("\n\n".join(story(10, seed=number)))
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path / "model", tiny_tokenizer("bpe"), max_length=64, type_vocab_size=1)
    chosen = settings(str(tmp_path / "model"))

    def attempt(name: str) -> str:
        prepare([tmp_path / "in"], tmp_path / name, chosen, workers=1)
        return capsys.readouterr().err

    with monkeypatch.context() as patch:
        patch.setattr(
            "pretrain.prepare.assemble",
            lambda *args, **kwargs: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")),
        )
        with pytest.raises(
            Failure, match=r"no space left for .*Finished shards are kept: free some space .* run the same command"
        ):
            attempt("store")
    assert len(list((tmp_path / ".store.prepare").glob("0*-*"))) == 4
    (tmp_path / "in" / "2.txt").write_text("\n\n".join(story(11, seed=2)))
    assert "going on: 3 of 4 shards" in attempt("store")
    assert "going on" not in attempt("fresh")
    assert content(tmp_path / "store") == content(tmp_path / "fresh")


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_full_disk_is_one_sentence_and_leaves_no_store(tmp_path: Path) -> None:
    corpus(tmp_path, 2)
    limit = 60_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = subprocess.run(
        command(tmp_path, "--workers", "1"), cwd=ROOT, capture_output=True, text=True, preexec_fn=limited
    )
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert "no space left for" in run.stderr
    assert not (tmp_path / "store").exists()


def test_the_command_reports_what_was_cleaned(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt").write_text("\n\n".join([*story(20), *story(2)]))
    run = subprocess.run(command(tmp_path, "--workers", "1"), cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert ["exact", "duplicates", "2"] in [line.split() for line in run.stdout.splitlines()]
    assert "20 documents" in run.stderr
    for wrong, message in (
        (["--bad-files", "maybe"], "'maybe' is neither refuse nor skip"),
        (["--overwrite", "--tokenizer", "char"], "is neither bpe, unigram, wordpiece nor a folder"),
        (["--overwrite", "--heldout", "1"], "is not a share"),
        (["--overwrite", "--workers", "0"], "is not a positive number"),
    ):
        run = subprocess.run(command(tmp_path, *wrong), cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 2
        assert message in run.stderr
        assert "Traceback" not in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "kind", "plan"),
    [
        ("en_speeches", "wordpiece", {"vocab_size": 4000}),
        ("zh_novels", "unigram", {"vocab_size": 8000, "character_coverage": 0.9995}),
        ("en_wikitext2_validtest", "bpe", {"vocab_size": 4000}),
    ],
)
def test_real_texts(tmp_path: Path, folder: str, kind: TokenizerKind, plan: dict) -> None:
    texts = shared(SHARED / "data" / "corpus" / folder)
    store = prepare([texts], tmp_path / "store", settings(kind, plan=plan, sample_mb=1.0), workers=2)
    store.verify()
    counts = store.manifest["counts"]
    assert 15 < counts["tokens"] / counts["sentences"] < 60
    assert store.manifest["unknown_share"] < 0.01
    assert store.manifest["cjk_share"] == pytest.approx(1.0 if folder.startswith("zh") else 0.0, abs=0.25)
