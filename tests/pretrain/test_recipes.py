from dataclasses import fields

import pytest

from contract.errors import UsageError
from encoders.presets import PRESETS
from pretrain.recipes import FOR_SHAPE, NAMED, Recipe, named


def test_every_value_of_every_recipe_names_its_source() -> None:
    for name, published in NAMED.items():
        assert published.sources.keys() == {field.name for field in fields(Recipe)}, name
        for field, source in published.sources.items():
            assert source.startswith(("paper, ", "README, ", "code, ", "ours", "not published")), (name, field, source)


def test_every_recipe_describes_samples_that_exist() -> None:
    for published in NAMED.values():
        view = published.recipe.view(seed=3)
        assert (view.max_length, view.seed) == (published.recipe.window, 3)


def test_every_shape_has_a_recipe() -> None:
    assert FOR_SHAPE.keys() == PRESETS.keys()
    assert set(FOR_SHAPE.values()) <= NAMED.keys()


def test_the_three_batch_settings_make_about_equal_passes_also_when_scaled() -> None:
    three = [NAMED[name].recipe for name in ("roberta-256", "roberta-2k", "roberta-8k")]
    assert [recipe.learning_rate for recipe in three] == [1e-4, 7e-4, 1e-3]
    for recipes in (three, [recipe.scaled(20_000) for recipe in three]):
        passes = [recipe.batch_size * recipe.steps for recipe in recipes]
        assert max(passes) / min(passes) < 1.1
        assert recipes[1].batch_size / recipes[0].batch_size == pytest.approx(8, rel=0.35)


def test_scaling_keeps_the_share_of_the_warm_up_and_never_grows() -> None:
    albert = NAMED["albert"].recipe
    small = albert.scaled(64 * 1000)
    assert small.batch_size * small.steps == pytest.approx(64 * 1000, rel=0.02)
    assert small.warmup_steps / small.steps == pytest.approx(3125 / 125_000, rel=0.02)
    assert small.learning_rate == albert.learning_rate
    assert albert.scaled(1e15) == albert
    assert albert.scaled(1).steps == albert.scaled(1).batch_size == 1


def test_an_unknown_recipe_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match=r"no recipe 'gpt'; there are 'albert', 'bert'"):
        named("gpt")
