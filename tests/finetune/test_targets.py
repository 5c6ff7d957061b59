import os
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import UsageError
from finetune.targets import check_checkpoint, check_log, check_predictions
from tests.tiny import tiny_checkpoint

Write = Callable[[str, str | bytes], Path]


def test_checkpoint_folders(tmp_path: Path) -> None:
    check_checkpoint(tmp_path / "new" / "deep", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_checkpoint(tmp_path / "empty", overwrite=False)
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="--overwrite"):
        check_checkpoint(checkpoint, overwrite=False)
    check_checkpoint(checkpoint, overwrite=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="other things"):
        check_checkpoint(tmp_path / "photos", overwrite=True)
    with pytest.raises(UsageError, match="is a file"):
        check_checkpoint(tmp_path / "photos" / "me.jpg", overwrite=True)
    with pytest.raises(UsageError, match="cannot be made"):
        check_checkpoint(tmp_path / "photos" / "me.jpg" / "out", overwrite=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_target_that_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="may write"):
        check_checkpoint(tmp_path / "locked" / "out", overwrite=False)


def test_a_swap_that_was_killed_halfway_is_mended_first(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "out").rename(tmp_path / ".out.old")
    with pytest.raises(UsageError, match="holds a checkpoint"):
        check_checkpoint(tmp_path / "out", overwrite=False)
    assert (tmp_path / "out" / "robal.json").is_file()


def test_prediction_files(write: Write, tmp_path: Path) -> None:
    data = write("in.csv", "text\na\n")
    check_predictions(tmp_path / "new.csv", data, overwrite=False)
    for out, message in [
        (tmp_path / "out.xlsx", "extension"),
        (data, "file of the texts"),
        (write("old.jsonl", ""), "--overwrite"),
    ]:
        with pytest.raises(UsageError, match=message):
            check_predictions(out, data, overwrite=False)
    check_predictions(tmp_path / "old.jsonl", data, overwrite=True)


def test_logs(tmp_path: Path) -> None:
    check_log(tmp_path / "new" / "log.jsonl")
    with pytest.raises(UsageError, match="is a folder"):
        check_log(tmp_path)
