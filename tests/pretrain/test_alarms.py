import math

import numpy as np
import pytest

from pretrain.alarms import PATIENCE, WINDOW, Alarms, TrainingBroke, unigram_entropy
from tests.pretrain.stores import store_of


def alarms(**changes: float) -> Alarms:
    values = {"spike_nats": 2.0, "entropy": 6.0, "warmup_steps": 10, **changes}
    return Alarms(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (5.0, math.nan), (5.0, math.inf)])
def test_what_is_no_number_stops_the_run(loss: float, norm: float) -> None:
    with pytest.raises(TrainingBroke, match=r"at step 7"):
        alarms().check(7, loss, norm)


def test_a_jump_stops_the_run_and_noise_does_not() -> None:
    watching = alarms()
    random = np.random.default_rng(0)
    for step in range(1, 300):
        watching.check(step, 5 - step / 100 + random.normal(0, 0.4), 1.0)
    with pytest.raises(TrainingBroke, match=r"jumped from about 2\.\d\d to 6\.00 at step 300"):
        watching.check(300, 6.0, 1.0)


def test_spikes_can_be_let_through() -> None:
    watching = alarms(spike_nats=0.0)
    for step in range(1, 2 * WINDOW):
        watching.check(step, 2.0, 1.0)
    watching.check(2 * WINDOW, 1e6, 1.0)


def test_a_loss_that_stays_at_the_frequencies_of_words_is_reported_once() -> None:
    watching = alarms()
    notes = {step: watching.check(step, 5.98, 1.0) for step in range(1, 2000)}
    told = {step: note for step, note in notes.items() if note}
    assert list(told) == [10 + PATIENCE]
    assert "the loss has stayed at 5.98" in told[10 + PATIENCE]
    assert watching.plateau


def test_a_model_that_leaves_the_plateau_in_time_is_not_blamed() -> None:
    watching = alarms()
    assert not any(watching.check(step, 6.0 if step < PATIENCE - WINDOW else 4.0, 1.0) for step in range(1, 1000))


def test_leaving_the_plateau_late_is_reported_too() -> None:
    watching = alarms()
    notes = [watching.check(step, 6.0 if step < 600 else 4.0, 1.0) for step in range(1, 1000)]
    assert [note.split(":")[1][:20] for note in notes if note] == [" the loss has stayed", " the loss has left t"]


def test_the_state_survives_a_checkpoint() -> None:
    whole, first, second = alarms(), alarms(), alarms()
    random = np.random.default_rng(1)
    losses = random.normal(6.0, 0.05, size=PATIENCE + 80)
    notes = [whole.check(step, loss, 1.0) for step, loss in enumerate(losses, 1)]
    before = [first.check(step, loss, 1.0) for step, loss in enumerate(losses[:300], 1)]
    second.restore(first.state())
    after = [second.check(step, loss, 1.0) for step, loss in enumerate(losses[300:], 301)]
    assert before + after == notes
    assert any(notes)


def test_the_entropy_is_that_of_the_training_split() -> None:
    store = store_of([[40], [30, 6], [500]], heldout=1)
    counts = np.bincount(store.tokens[:76])
    shares = counts[counts > 0] / 76
    assert unigram_entropy(store) == pytest.approx(-(shares * np.log(shares)).sum())
