import os
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import DataError, UsageError
from finetune.inputs import Inputs, check_target, read_inputs
from finetune.reader import DataOptions
from tests.tiny import tiny_checkpoint

Write = Callable[[str, str | bytes], Path]
TRAIN = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))


def read(train: Path, dev: Path | None = None, **options: object) -> Inputs:
    values: dict[str, object] = {
        "problem_type": "single_label_classification",
        "renames": {},
        "dev_fraction": 0.1,
        "seed": 0,
    }
    return read_inputs(train, dev, DataOptions(), **(values | options))  # type: ignore[arg-type]


def test_dev_rows_are_set_aside_or_read(write: Write) -> None:
    train = write("train.csv", TRAIN)
    inputs = read(train)
    assert (len(inputs.train), len(inputs.dev), inputs.seen_dev_rows) == (36, 4, 0)
    dev = write("dev.csv", "text,label\nTEXT  1,a\nnew,b\n")
    inputs = read(train, dev)
    assert (len(inputs.train), len(inputs.dev), inputs.seen_dev_rows) == (40, 2, 1)
    assert len(read(train, dev_fraction=0.0).dev) == 0


def test_every_file_is_checked_before_anything_else(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", TRAIN)
    with pytest.raises(DataError, match=r"dev\.csv has labels that .*train\.csv never had: 'c'"):
        read(train, write("dev.csv", "text,label\nx,c\n"))
    with pytest.raises(DataError, match=r"no\.csv does not exist"):
        read(train, tmp_path / "no.csv")
    with pytest.raises(DataError, match="only the class"):
        read(write("one.csv", "text,label\nx,a\ny,a\n"))


def test_regression_has_one_output_and_no_names(write: Write) -> None:
    train = write("train.csv", "text,score\n" + "".join(f"text {n},{n}\n" for n in range(30)))
    inputs = read(train, problem_type="regression")
    assert (inputs.labels.names, len(inputs.dev)) == (("score",), 10)
    with pytest.raises(UsageError, match="--label-names"):
        read(train, problem_type="regression", renames={"1": "x"})


def test_targets(tmp_path: Path) -> None:
    check_target(tmp_path / "new" / "deep", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_target(tmp_path / "empty", overwrite=False)
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="--overwrite"):
        check_target(checkpoint, overwrite=False)
    check_target(checkpoint, overwrite=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="other things"):
        check_target(tmp_path / "photos", overwrite=True)
    with pytest.raises(UsageError, match="is a file"):
        check_target(tmp_path / "photos" / "me.jpg", overwrite=True)
    with pytest.raises(UsageError, match="cannot be made"):
        check_target(tmp_path / "photos" / "me.jpg" / "out", overwrite=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_target_that_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="may write"):
        check_target(tmp_path / "locked" / "out", overwrite=False)


def test_a_swap_that_was_killed_halfway_is_mended_first(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "out").rename(tmp_path / ".out.old")
    with pytest.raises(UsageError, match="holds a checkpoint"):
        check_target(tmp_path / "out", overwrite=False)
    assert (tmp_path / "out" / "robal.json").is_file()
