from dataclasses import replace

import numpy as np
import pytest
import torch

from encoders.heads import MaskedLanguageModel
from pretrain.layers import layer_steps
from pretrain.micro import Batcher
from pretrain.views import View, ViewSettings
from tests.encoders.oracle import overwrite
from tests.pretrain.stores import store_of
from tests.tiny import tiny_config


def test_steps_are_those_of_each_token_computed_alone() -> None:
    view = View(store_of([[9, 4], [3, 8, 2], [12]], "wordpiece"), ViewSettings(format="doc-sentences", max_length=16))
    config = tiny_config("albert", max_length=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = MaskedLanguageModel(replace(config, vocab_size=200)).eval()
    overwrite(model)
    batcher = Batcher(view=view, micro_tokens=20, packed=True, with_types=True, device=torch.device("cpu"))
    found = layer_steps(model.encoder, batcher, samples=10)

    distances, cosines, degrees = [], [], []
    for sample in range(view.samples):
        one = view.load(np.array([sample]), 0)
        hidden: list[torch.Tensor] = []
        with torch.no_grad():
            model.encoder(
                torch.from_numpy(one.input_ids)[None], None, torch.from_numpy(one.token_type_ids)[None], collect=hidden
            )
        states = [state[0].double().numpy() for state in hidden]
        for token in range(len(one.input_ids)):
            before, after = np.array([s[token] for s in states[:-1]]), np.array([s[token] for s in states[1:]])
            distances.append(np.linalg.norm(after - before, axis=1))
            cosine = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
            cosines.append(cosine)
            degrees.append(np.degrees(np.arccos(cosine)))
    assert len(found.distance) == config.num_hidden_layers
    assert found.distance == pytest.approx(np.mean(distances, axis=0), rel=1e-5)
    assert found.cosine == pytest.approx(np.mean(cosines, axis=0), rel=1e-5)
    assert found.degrees == pytest.approx(np.mean(degrees, axis=0), rel=1e-4)
