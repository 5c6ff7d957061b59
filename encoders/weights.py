"""Weights between our modules and Hugging Face's names: one rename table per family, used in both directions.

A table (``Family.renames``) maps module names, with placeholders for the stored blocks:

    encoder.ffn.{ffn}.up   <->   bert.encoder.layer.{block}.intermediate.dense

``hf_names`` expands it for a model into {name in the file: name of our parameter} and insists that every parameter of
the model has a name and that no two share one. The map is one-to-one, except that a file which cannot express a kind of
sharing holds a shared parameter as several equal copies.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from contract.errors import CheckpointError, listing
from encoders.config import UNKNOWN_TO_TRANSFORMERS, EncoderConfig
from encoders.families import FAMILIES
from encoders.family import Family
from encoders.heads import Model
from encoders.sharing import stored_blocks

RELATIVES = ("xlm-roberta", "camembert")
"""Other ``model_type`` whose files hold a RoBERTa."""


def hf_names(model: Model) -> dict[str, str]:
    """{Hugging Face's name: our name} for every parameter of a model."""
    config = model.config
    modules: defaultdict[str, set[str]] = defaultdict(set)  # our module -> its names in the file
    for ours, theirs in config.family.renames.items():
        for index, block in enumerate(stored_blocks(config)):
            group, inner = divmod(index, config.inner_group_num if config.stores_groups else 1)
            name = theirs.format(block=index, group=group, inner=inner)
            modules[ours.format(attention=block.attention, ffn=block.ffn)].add(name)
    names: dict[str, str] = {}
    for ours, _ in model.named_parameters():
        module, _, leaf = ours.rpartition(".")
        assert module in modules, f"{ours} has no entry in the rename table of {config.family.name}"
        for theirs in sorted(modules[module]):
            assert f"{theirs}.{leaf}" not in names, f"{theirs}.{leaf} would stand for two parameters"
            names[f"{theirs}.{leaf}"] = ours
    return names


def to_hf(model: Model) -> dict[str, Tensor]:
    """A model's tensors under Hugging Face's names."""
    state = model.state_dict()
    return {theirs: state[ours] for theirs, ours in hf_names(model).items()}


def detect_family(names: Iterable[str], model_type: str | None) -> str:
    """The family that the tensors' names speak of, else ``model_type`` of ``config.json``.

    Chinese models called RoBERTa are BERT, and configurations are copied from other families; the tensors know.

    Raises:
        CheckpointError: ``model_type`` is another architecture, or missing while the names say nothing.
    """
    model_type = None if model_type is None else str(model_type).removeprefix(UNKNOWN_TO_TRANSFORMERS)
    if model_type not in (None, *FAMILIES, *RELATIVES):
        raise CheckpointError(f"config.json has model_type={model_type!r}; robal reads {listing(FAMILIES)}.")
    plain = [re.sub(WRAPPERS, "", name) for name in names]
    if any("albert_layer_groups." in name for name in plain):
        return "albert"
    for family, signs in (("roberta", ("roberta.", "lm_head.")), ("bert", ("bert.", "cls."))):
        if any(name.startswith(signs) for name in plain):
            return family
    if model_type is None:
        raise CheckpointError(
            f"config.json has no model_type and the weights do not tell; set one of {listing(FAMILIES)}."
        )
    return "roberta" if model_type in RELATIVES else model_type


WRAPPERS = r"^(module\.|_orig_mod\.)+"
"""What DataParallel and torch.compile put before names."""


def canonical(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Tensors under the names that today's transformers writes.

    Wrappers' prefixes go, TensorFlow's ``gamma`` and ``beta`` become ``weight`` and ``bias``, a bare encoder gets its
    prefix, the masked-LM bias has one name, and stored ``position_ids`` are checked and left out.
    """
    clean: dict[str, Tensor] = {}
    for original, tensor in tensors.items():
        name = re.sub(WRAPPERS, "", original)
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        if name.endswith("position_ids"):
            if not torch.equal(tensor.flatten().long(), torch.arange(tensor.numel())):
                raise CheckpointError(f"{original} is not 0, 1, 2, ...; no other numbering of positions is known.")
            continue
        clean[name] = tensor
    if not any(name.startswith(f"{family.name}.") for name in clean):
        bare = ("embeddings.", "encoder.", "pooler.")
        clean = {f"{family.name}.{name}" if name.startswith(bare) else name: t for name, t in clean.items()}
    bias = f"{family.renames['masked_lm']}.bias"
    decoder_bias = f"{family.renames['masked_lm.decoder']}.bias"
    if bias not in clean and decoder_bias in clean:
        clean[bias] = clean.pop(decoder_bias)
    return clean


def fill(
    model: Model, tensors: Mapping[str, Tensor], where: object, *, skip: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy a file's tensors into a model, converted to the model's type.

    Args:
        model: the model.
        tensors: the file's tensors by canonical names.
        where: the folder, for messages.
        skip: our names of parameters to leave alone even if the file has them.

    Returns:
        Our names of the parameters that were not filled, and the file's names that the model has no use for.

    Raises:
        CheckpointError: an encoder tensor is missing or surplus, a shape differs, copies of a shared tensor differ, or
            a decoder is stored that is not the word embeddings though the configuration says so. Or a number is not
            finite.
    """
    names = {theirs: ours for theirs, ours in hf_names(model).items() if ours not in skip}
    parameters = dict(model.named_parameters())
    _check_encoder(model.config, names, tensors, where)
    source: dict[str, str] = {}
    for theirs, ours in names.items():
        if theirs not in tensors:
            continue
        _check_tensor(theirs, tensors[theirs], ours, parameters[ours], where)
        first = source.setdefault(ours, theirs)
        if first != theirs and not torch.equal(tensors[first], tensors[theirs]):
            raise CheckpointError(
                f"{where}: {first} and {theirs} differ, and config.json says that they are shared "
                f'(layer_sharing={model.config.layer_sharing!r}); remove "robal" from it to load separate layers.'
            )
    unused = tensors.keys() - names.keys()
    if "masked_lm.bias" in parameters:
        unused -= _check_decoder(model.config, tensors, where)
    with torch.no_grad():
        for ours, theirs in source.items():
            parameters[ours].copy_(tensors[theirs])
    return tuple(ours for ours in parameters if ours not in source), tuple(sorted(unused))


def _check_encoder(config: EncoderConfig, names: Mapping[str, str], tensors: Collection[str], where: object) -> None:
    """Every encoder tensor is there, and the file has no encoder tensor that the configuration does not mention."""
    needed = [theirs for theirs, ours in names.items() if ours.startswith("encoder.")]
    missing = [name for name in needed if name not in tensors]
    if len(missing) == len(needed):
        raise CheckpointError(
            f"{where}: matched 0 of {len(tensors)} tensors; the file has names such as {min(tensors, default='')!r} "
            f"where {min(needed)!r} was expected. If only a prefix differs, rename the tensors without it."
        )
    if missing:
        raise CheckpointError(f"{where}: {len(missing)} encoder tensors are missing: {listing(missing, limit=4)}.")
    prefixes = (f"{config.family.name}.embeddings.", f"{config.family.name}.encoder.")
    if surplus := [name for name in tensors if name.startswith(prefixes) and name not in names]:
        raise CheckpointError(
            f"{where}: {len(surplus)} encoder tensors have no place in the model that config.json describes: "
            f"{listing(surplus, limit=4)}. The two files do not belong together."
        )


def _check_tensor(theirs: str, tensor: Tensor, ours: str, parameter: Tensor, where: object) -> None:
    if tensor.shape != parameter.shape:
        remedy = "config.json and the weights do not belong together."
        if ours.startswith("classifier."):
            remedy = f"The file's head has {len(tensor)} labels: ask for a new head (--new-head) to train another."
        raise CheckpointError(
            f"{where}: {theirs} has shape {tuple(tensor.shape)} and the model needs {tuple(parameter.shape)}. {remedy}"
        )
    if not tensor.is_floating_point():
        raise CheckpointError(f"{where}: {theirs} is stored as {tensor.dtype}; a float type was expected.")
    if not bool(tensor.isfinite().all()):
        raise CheckpointError(f"{where}: {theirs} holds NaN or infinity, so the training that made it diverged.")


def _check_decoder(config: EncoderConfig, tensors: Mapping[str, Tensor], where: object) -> set[str]:
    """Names of stored copies of tied tensors, after a check that copies is what they are."""
    renames = config.family.renames
    copies = {f"{renames['masked_lm.decoder']}.bias": f"{renames['masked_lm']}.bias"}
    if config.tie_word_embeddings:
        copies[f"{renames['masked_lm.decoder']}.weight"] = f"{renames['encoder.embeddings.word']}.weight"
    for copy, original in copies.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise CheckpointError(
                f"{where}: {copy} differs from {original}, and config.json says that they are one tensor; set "
                '"tie_word_embeddings": false in config.json to keep the decoder, or remove it from the file.'
            )
    return copies.keys() & tensors.keys()
