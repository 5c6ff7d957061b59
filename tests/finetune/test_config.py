import pytest

from contract.errors import UsageError
from finetune.config import TrainingConfig


def resolved(**values: object) -> TrainingConfig:
    options = {
        name: values.pop(name) for name in ("from_scratch", "hidden_size", "max_length", "rows") if name in values
    }
    defaults = {"from_scratch": False, "hidden_size": 768, "max_length": 512, "rows": 10_000}
    return TrainingConfig(**values).resolved(**(defaults | options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("epochs", 0), ("batch_size", 0), ("accumulate", 0), ("evals_per_epoch", 0), ("patience", -1)],
        *[("learning_rate", 0.0), ("learning_rate", 3.0), ("warmup", 1.0), ("power", 0.0), ("weight_decay", -1.0)],
        *[("clip_norm", -1.0), ("dev_fraction", 0.9), ("max_length", 4), ("seed", -1), ("seed", 2**32)],
        *[("metric", "f2"), ("metric", "spearman"), ("dtype", "fp8"), ("task", "ner"), ("schedule", "cosine")],
    ],
)
def test_a_value_out_of_range_names_its_flag(option: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')} is {value!r}"):
        TrainingConfig(**{option: value})  # type: ignore[arg-type]


def test_the_published_learning_rates_come_out() -> None:
    assert resolved(hidden_size=768).learning_rate == pytest.approx(3e-5)
    assert 5e-6 <= resolved(hidden_size=4096).learning_rate <= 1e-5  # type: ignore[operator]
    assert 2e-5 <= resolved(hidden_size=1024).learning_rate <= 5e-5  # type: ignore[operator]
    assert resolved(hidden_size=64).learning_rate == 1e-4
    assert resolved(learning_rate=0.5, hidden_size=64).learning_rate == 0.5


def test_small_files_get_more_epochs() -> None:
    epochs = [resolved(rows=rows).epochs for rows in (20, 1000, 7000, 10**6)]
    assert epochs == sorted(epochs, reverse=True)  # type: ignore[type-var]
    assert (epochs[0], epochs[-1]) == (20, 3)
    assert resolved(rows=20, epochs=1).epochs == 1


def test_the_metric_follows_the_task() -> None:
    assert resolved().metric == "macro_f1"
    assert resolved(task="regression").metric == "spearman"
    assert resolved(task="multi_label").metric == "micro_f1"


def test_more_tokens_than_positions_are_refused() -> None:
    assert resolved(max_length=128).max_length == 128
    with pytest.raises(UsageError, match="positions for 512 tokens"):
        TrainingConfig(max_length=513).resolved(from_scratch=False, hidden_size=768, max_length=512, rows=10)
