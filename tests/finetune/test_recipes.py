"""Each recipe against its formula, written out independently."""

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from contract.errors import UsageError
from finetune.averaging import WeightAverage
from finetune.collapse import Collapsed, has_collapsed
from finetune.config import TrainingConfig
from finetune.events import Evaluation, Progress
from finetune.layers import freeze, optimiser_groups, redraw_top
from finetune.loop import train
from finetune.losses import class_weights, summed_divergence, summed_loss
from finetune.tries import Tries, check_recipes, prepare
from labelled.metrics import evaluate_logits
from tests.finetune.test_loop import QUIET, Recorder, data, model_and_encoder, parameters, run
from tests.tiny import tiny_config, tiny_model

ONE, SEVERAL = "single_label_classification", "multi_label_classification"
LOGITS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)) * 3
OTHERS = LOGITS + torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
CLASSES = torch.tensor([0, 1, 2, 1, 0, 0])
GIVEN = (torch.rand(6, 3, generator=torch.Generator().manual_seed(2)) > 0.5).float()


def test_layer_decay_falls_by_one_factor_for_each_layer() -> None:
    model = tiny_model(tiny_config("bert"))
    groups = optimiser_groups(model, rate=1.0, weight_decay=0.1, layer_decay=0.5)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    expected = {"encoder.embeddings.": 0.5**4, "pooler.": 1.0, "classifier.": 1.0}
    expected |= {f"encoder.{part}.{layer}.": 0.5 ** (3 - layer) for part in ("attention", "ffn") for layer in range(3)}
    for name, parameter in model.named_parameters():
        assert rates[id(parameter)] == next(rate for prefix, rate in expected.items() if name.startswith(prefix)), name
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert all(decays[id(p)] == (0.1 if p.ndim > 1 else 0.0) for p in model.parameters())


@pytest.mark.parametrize("flag", ["layer_decay", "freeze_layers", "reinit_layers"])
def test_recipes_by_depth_are_refused_where_layers_are_shared(flag: str) -> None:
    model = tiny_model(tiny_config("albert"))
    config = TrainingConfig(**{flag: 0.9 if flag == "layer_decay" else 1})

    def begin() -> None:
        check_recipes(model, config)
        prepare(model, config, None, from_scratch=False)

    with pytest.raises(UsageError, match=f"--{flag.replace('_', '-')}.*shares its layers"):
        begin()


def test_frozen_layers_stay_and_the_rest_moves() -> None:
    model, encoder = model_and_encoder()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    freeze(model, 2)
    run(model, encoder, data(encoder, 16), batch_size=4)
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    low = ("encoder.embeddings.", "encoder.attention.0.", "encoder.attention.1.", "encoder.ffn.0.", "encoder.ffn.1.")
    assert moved == {name for name in before if not name.startswith(low)}
    with pytest.raises(UsageError, match="has 3 layers"):
        freeze(model, 4)


def test_top_layers_are_drawn_anew() -> None:
    model = tiny_model(tiny_config("bert", initializer_range=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    redraw_top(model, 1)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if name.startswith(("encoder.attention.2.", "encoder.ffn.2."))}
    assert model.encoder.ffn[2].up.weight.std().item() == pytest.approx(0.5, rel=0.1)


def test_label_smoothing_spreads_the_target() -> None:
    smoothing, target = 0.1, nn.functional.one_hot(CLASSES, 3).float()
    soft = (1 - smoothing) * target + smoothing / 3
    expected = -(soft * LOGITS.log_softmax(1)).sum()
    assert summed_loss(LOGITS, CLASSES, ONE, smoothing=smoothing) == pytest.approx(expected.item(), rel=1e-6)
    soft = GIVEN * 0.9 + 0.05
    p = LOGITS.sigmoid()
    expected = -(soft * p.log() + (1 - soft) * (1 - p).log()).mean(1).sum()
    assert summed_loss(LOGITS, GIVEN, SEVERAL, smoothing=0.1) == pytest.approx(expected.item(), rel=1e-5)


def test_focal_loss_is_that_of_the_paper() -> None:
    p = LOGITS.softmax(1)[torch.arange(6), CLASSES]
    assert summed_loss(LOGITS, CLASSES, ONE, focal_gamma=2) == pytest.approx(
        (-((1 - p) ** 2) * p.log()).sum().item(), rel=1e-5
    )
    p = torch.where(GIVEN > 0, LOGITS.sigmoid(), 1 - LOGITS.sigmoid())
    expected = (-((1 - p) ** 2) * p.log()).mean(1).sum().item()
    assert summed_loss(LOGITS, GIVEN, SEVERAL, focal_gamma=2) == pytest.approx(expected, rel=1e-5)


def test_class_weights_are_scikit_learns_and_have_mean_one_over_rows() -> None:
    targets = np.array([0] * 8 + [1] * 2 + [2] * 5)
    weights = class_weights(targets, ("a", "b", "c"), ONE)
    assert weights.numpy() == pytest.approx(compute_class_weight("balanced", classes=np.arange(3), y=targets))
    assert weights[targets].mean().item() == pytest.approx(1)
    assert class_weights(np.array([0, 0, 2]), ("a", "never", "c"), ONE)[1] == 1, "a class without rows"
    given = np.array([[1, 0], [1, 0], [0, 0], [1, 0]], dtype=np.float32)
    assert class_weights(given, ("a", "b"), SEVERAL).tolist() == pytest.approx([1 / 3, 4])
    row = -LOGITS.log_softmax(1)[torch.arange(6), CLASSES] * weights[CLASSES]
    assert summed_loss(LOGITS, CLASSES, ONE, weights=weights) == pytest.approx(row.sum().item(), rel=1e-6)


def test_r_drop_is_the_mean_of_both_divergences() -> None:
    p, q = LOGITS.softmax(1), OTHERS.softmax(1)
    both = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
    assert summed_divergence(LOGITS, OTHERS, ONE) == pytest.approx(both.item() / 2, rel=1e-5)
    p, q = LOGITS.sigmoid(), OTHERS.sigmoid()
    both = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log() + q * (q / p).log()
    both = both + (1 - q) * ((1 - q) / (1 - p)).log()
    assert summed_divergence(LOGITS, OTHERS, SEVERAL) == pytest.approx(both.mean(1).sum().item() / 2, rel=1e-5)


def test_r_drop_without_dropout_trains_as_without_it_and_is_refused() -> None:
    """Two equal passes: the mean of the losses is the loss and their distance is zero."""
    once, encoder = model_and_encoder()
    twice, _ = model_and_encoder()
    run(once, encoder, data(encoder, 12), batch_size=4)
    run(twice, encoder, data(encoder, 12), batch_size=4, r_drop=3.0)
    assert (parameters(once) - parameters(twice)).abs().max() < 1e-6
    with pytest.raises(UsageError, match="--r-drop"):
        check_recipes(tiny_model(tiny_config("albert", **QUIET)), TrainingConfig(r_drop=1.0))


def test_r_drop_with_dropout_is_another_run() -> None:
    results = []
    for weight in (0.0, 3.0):
        model, encoder = model_and_encoder(hidden_dropout_prob=0.2)
        torch.manual_seed(0)
        run(model, encoder, data(encoder, 12), batch_size=4, r_drop=weight)
        results.append(parameters(model))
    assert (results[0] - results[1]).abs().max() > 1e-4


def test_the_average_is_the_weighted_mean_of_all_steps() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average, values, expected = WeightAverage(model, 0.5), [1.0, 5.0, -2.0, 7.0, 8.0], 0.0
    for step, value in enumerate(values, 1):
        nn.init.constant_(model.weight, value)
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
    with average.applied():
        assert model.weight.item() == pytest.approx(expected)
    assert model.weight.item() == 8.0, "the weights in training come back"


def test_what_is_kept_are_the_averaged_weights() -> None:
    model, encoder = model_and_encoder()
    oracle, _ = model_and_encoder()
    rows = data(encoder, 8)
    seen = []

    class Watch:
        def stepped(self, step: object) -> None:
            seen.append(parameters(model).clone())

        def evaluated(self, evaluation: Evaluation) -> None:
            pass

    kept: list[torch.Tensor] = []
    first = parameters(oracle)
    config = TrainingConfig(epochs=1, batch_size=2, learning_rate=0.01, metric="accuracy", ema_decay=0.3)
    train(
        model,
        rows,
        config,
        precision="fp32",
        evaluate=dict,
        keep=lambda progress: kept.append(parameters(model).clone()),
        watch=Watch(),
        progress=Progress(),
    )
    for step, weights in enumerate(seen, 1):
        decay = min(0.3, (1 + step) / (10 + step))
        first = decay * first + (1 - decay) * weights
    assert (kept[0] - first).abs().max() < 1e-12
    assert torch.equal(parameters(model), seen[-1])
    assert (kept[0] - seen[-1]).abs().max() > 1e-4


def figures(predicted: list[int], truth: list[int], margin: float) -> dict[str, object]:
    logits = np.zeros((len(truth), 2), dtype=np.float32)
    logits[np.arange(len(truth)), predicted] = margin
    return evaluate_logits(logits, np.array(truth), ("a", "b"), ONE)


def test_collapse_is_one_class_and_a_loss_of_mere_frequencies() -> None:
    assert has_collapsed(figures([0] * 10, [0, 1] * 5, 0.1))
    assert not has_collapsed(figures([0] * 9 + [1], [0, 1] * 5, 0.1)), "two classes were predicted"
    assert not has_collapsed(figures([0] * 10, [0] * 10, 0.1)), "the data has one class"
    rare = figures([0] * 20, [0] * 19 + [1], 2.0)
    assert rare["loss"] > -(0.95 * math.log(0.95) + 0.05 * math.log(0.05))
    knows = figures([0] * 20, [0] * 19 + [1], 0.0)
    knows |= {"predicted_classes": 1, "loss": 0.1}
    assert not has_collapsed(knows), "the loss is better than the frequencies give: the threshold is all that is wrong"
    assert not has_collapsed({"spearman": 0.1, "loss": 3.0})


def test_a_collapsed_run_is_stopped_halfway_unless_no_retry_is_wanted() -> None:
    flat = figures([0] * 10, [0, 1] * 5, 0.1)
    for retries, steps in ((1, 104), (0, 200)):
        model, encoder = model_and_encoder()
        progress = Progress()
        config = TrainingConfig(
            epochs=25, batch_size=1, learning_rate=1e-6, metric="accuracy", patience=0, retries=retries
        )

        with pytest.raises(Collapsed, match="same class") if retries else nullcontext():
            train(
                model,
                data(encoder, 8),
                config,
                precision="fp32",
                evaluate=lambda: flat,
                keep=lambda progress: None,
                watch=Recorder(),
                progress=progress,
            )
        assert progress.steps == steps


def done(figure: float) -> Progress:
    return Progress(best=Evaluation(step=1, epoch=1, figures={"accuracy": figure, "loss": 1.0}, kept=True))


def test_seeds_and_retries_follow_each_other() -> None:
    config = TrainingConfig(seeds=2, seed=7, learning_rate=3e-4, metric="accuracy")
    tries = Tries(config)
    tries.lower()
    assert (tries.config.learning_rate, tries.config.seed, tries.config.retries) == (pytest.approx(1e-4), 9, 0)
    tries.finish(done(0.8))
    assert tries.next_seed()
    assert (tries.config.seed, tries.config.learning_rate) == (8, pytest.approx(1e-4))
    assert not tries.is_champion(done(0.7))
    again = Tries.restored(config, {"tries": tries.state()})
    assert (again.config, again.champion, again.results) == (tries.config, tries.champion, tries.results)
    tries.finish(done(0.7))
    assert not tries.next_seed()
    assert tries.champion.best is not None
    assert tries.champion.best.figures["accuracy"] == 0.8
    assert "best of 2 seeds (0.8000, 0.7000; mean 0.7500, standard deviation 0.0707)" in tries.summary("accuracy")


def test_later_seeds_start_from_the_first_weights_with_a_new_head() -> None:
    model = tiny_model(tiny_config("bert"))
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    prepare(model, replace(TrainingConfig(), seed=3), initial, from_scratch=False)
    differing = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, initial[name])}
    assert differing == {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize(
    "options",
    [
        {"layer_decay": 0.0},
        {"label_smoothing": 1.0},
        {"ema_decay": 1.0},
        {"freeze_layers": -1},
        {"class_weights": "auto"},
        {"focal_gamma": 1.0, "label_smoothing": 0.1},
        {"task": "regression", "r_drop": 1.0},
        {"seeds": 0},
    ],
)
def test_values_without_meaning_are_refused_by_name(options: dict[str, object]) -> None:
    name = next(name for name in options if name != "task").replace("_", "-")
    with pytest.raises(UsageError, match=f"--{name}"):
        TrainingConfig(**options)  # type: ignore[arg-type]
