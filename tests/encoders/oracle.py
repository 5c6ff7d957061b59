"""transformers as the oracle: tiny awkward models of every family, and the same weights in ours.

No two sizes are equal, so that a swapped axis cannot hide; every parameter is overwritten, because zero biases and unit
norms would hide a dropped one. The configurations are written out here in transformers' terms: nothing of ours takes
part in building the oracle.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from encoders.checkpoint import load_classifier, load_masked_lm, load_pretraining, open_checkpoint
from encoders.heads import Model

BATCH, SEQ, LABELS = 3, 7, 6
SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 20,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,  # head_dim 5
    "intermediate_size": 37,
    "max_position_embeddings": 29,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_labels": LABELS,
}
ALBERT: dict[str, Any] = SIZES | {"embedding_size": 11, "classifier_dropout_prob": 0.0}
CONFIGS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "bert": lambda: transformers.BertConfig(**SIZES),
    "bert-relu": lambda: transformers.BertConfig(**SIZES, hidden_act="relu", pad_token_id=8, layer_norm_eps=1e-3),
    "bert-gelu_new": lambda: transformers.BertConfig(**SIZES, hidden_act="gelu_new", type_vocab_size=3),
    "roberta": lambda: transformers.RobertaConfig(**SIZES, type_vocab_size=1, layer_norm_eps=1e-5),
    "roberta-pad3": lambda: transformers.RobertaConfig(**SIZES, pad_token_id=3, type_vocab_size=2),
    "roberta-tanh": lambda: transformers.RobertaConfig(**SIZES, hidden_act="gelu_pytorch_tanh", type_vocab_size=1),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(**SIZES, type_vocab_size=1),
    "albert": lambda: transformers.AlbertConfig(**ALBERT),
    "albert-groups": lambda: transformers.AlbertConfig(**ALBERT, num_hidden_groups=2, inner_group_num=2),
    "albert-square": lambda: transformers.AlbertConfig(**(ALBERT | {"embedding_size": 20}), hidden_act="gelu"),
}
HEADS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "SequenceClassifier": (transformers.AutoModelForSequenceClassification, load_classifier),
    "MaskedLanguageModel": (transformers.AutoModelForMaskedLM, load_masked_lm),
    "PretrainingModel": (transformers.AutoModelForPreTraining, load_pretraining),
}


def overwrite(model: torch.nn.Module, seed: int = 0) -> None:
    """Seeded values for every parameter, none of them trivial."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(float(is_scale) + 0.3 * torch.randn(parameter.shape, generator=generator))


def oracle(case: str, head: str = "SequenceClassifier", **changes: Any) -> Any:
    """A transformers model in evaluation mode, with plain attention."""
    config = CONFIGS[case]()
    config.update(changes)
    model = HEADS[head][0].from_config(config, attn_implementation="eager").eval()
    overwrite(model)
    return model


def native(theirs: Any, folder: Path, head: str = "SequenceClassifier") -> Model:
    """Our model with the weights of theirs, through the files that theirs writes."""
    theirs.save_pretrained(folder)
    loaded = HEADS[head][1](open_checkpoint(folder))
    assert not loaded.new_tensors
    assert not loaded.unused_tensors
    model: Model = loaded.model
    return model


def inputs(config: Any, *, seed: int = 1, padded: bool = True) -> dict[str, Tensor]:
    """A batch (3, 7) with texts of 7, 4 and 1 tokens, or all of 7."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, config.vocab_size, (BATCH, SEQ), generator=generator)
    types = torch.randint(0, config.type_vocab_size, (BATCH, SEQ), generator=generator)
    lengths = torch.tensor([7, 4, 1] if padded else [7, 7, 7])
    mask = torch.arange(SEQ) < lengths[:, None]
    return {
        "input_ids": ids.where(mask, config.pad_token_id),
        "attention_mask": mask.long(),
        "token_type_ids": types,
    }
