"""Weights between our modules and Hugging Face's names: one rename table per family, used in both directions.

A table (``Family.renames``) maps module names, with placeholders for the stored blocks:

    encoder.ffn.{ffn}.up   <->   bert.encoder.layer.{block}.intermediate.dense

``hf_names`` expands it for a model into {name in the file: name of our parameter} and insists that every parameter of the
model has a name and no two parameters share one. The map is one-to-one, except that a file which cannot express a kind of
sharing holds a shared parameter as several equal copies.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from contract.errors import CheckpointError, listing
from encoders.config import EncoderConfig
from encoders.family import Family
from encoders.sharing import stored_blocks


def hf_names(model: nn.Module, config: EncoderConfig) -> dict[str, str]:
    """{Hugging Face's name: our parameter's name} for every parameter of a model of this room."""
    modules: defaultdict[str, dict[str, None]] = defaultdict(dict)  # ours -> its names in the file, in order
    for ours, theirs in config.family.renames.items():
        for index, block in enumerate(stored_blocks(config)):
            place = {"block": index, "group": index // config.inner_group_num, "inner": index % config.inner_group_num}
            modules[ours.format(attention=block.attention, ffn=block.ffn)][theirs.format(**place)] = None
    names: dict[str, str] = {}
    for ours, _ in model.named_parameters():
        module, _, leaf = ours.rpartition(".")
        assert module in modules, f"{ours} has no entry in the rename table of {config.family.name}"
        for theirs in modules[module]:
            assert f"{theirs}.{leaf}" not in names, f"{theirs}.{leaf} stands for {ours} and {names[f'{theirs}.{leaf}']}"
            names[f"{theirs}.{leaf}"] = ours
    return names


def to_hf(model: nn.Module, config: EncoderConfig) -> dict[str, Tensor]:
    """A model's tensors under Hugging Face's names."""
    state = model.state_dict()
    return {theirs: state[ours] for theirs, ours in hf_names(model, config).items()}


def detect_family(names: Iterable[str], model_type: object) -> object:
    """The family that the tensors' names speak of, else ``model_type``.

    Chinese models called RoBERTa are BERT, and configurations have been copied from other families; the tensors know.
    """
    names = list(names)
    if any("albert_layer_groups." in name for name in names):
        return "albert"
    for family, signs in (("roberta", ("roberta.", "lm_head.")), ("bert", ("bert.", "cls."))):
        if any(name.removeprefix("module.").startswith(signs) for name in names):
            return family
    return model_type


def canonical(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Tensors under the names that today's transformers writes.

    Wrappers' prefixes go (``module.`` of DataParallel, ``_orig_mod.`` of torch.compile), TensorFlow's ``gamma`` and
    ``beta`` become ``weight`` and ``bias``, the encoder's prefix is added to a bare encoder, and the ``position_ids``
    that old versions stored are checked and left out.
    """
    clean: dict[str, Tensor] = {}
    for original, tensor in tensors.items():
        name = re.sub(r"^(module\.|_orig_mod\.)+", "", original)
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        if name.endswith("position_ids"):
            if not torch.equal(tensor.flatten(), torch.arange(tensor.numel())):
                raise CheckpointError(f"{original} is not 0, 1, 2, ...; robal knows no other numbering of positions.")
            continue
        clean[name] = tensor
    if not any(name.startswith(f"{family.name}.") for name in clean):
        bare = ("embeddings.", "encoder.", "pooler.")
        clean = {f"{family.name}.{name}" if name.startswith(bare) else name: t for name, t in clean.items()}
    return clean


def fill(
    model: nn.Module, config: EncoderConfig, tensors: Mapping[str, Tensor], where: str
) -> tuple[list[str], list[str]]:
    """Copy a file's tensors into a model, as the model's own dtype.

    Args:
        model: a model of this room.
        config: its configuration.
        tensors: by canonical names.
        where: the folder, for messages.

    Returns:
        Our names of the parameters that the file lacks, and the file's names that the model has no use for.

    Raises:
        CheckpointError: an encoder tensor is missing or surplus, a shape differs, copies of a shared tensor differ, or a
            decoder is stored that is not the word embeddings though the configuration says so.
    """
    names = hf_names(model, config)
    parameters = dict(model.named_parameters())
    found = names.keys() & tensors.keys()
    _check_encoder(config, names, tensors, where)
    for name in sorted(found):
        if tensors[name].shape != parameters[names[name]].shape:
            raise CheckpointError(
                f"{where}: {name} has shape {tuple(tensors[name].shape)} and config.json implies "
                f"{tuple(parameters[names[name]].shape)}.{_remedy(name)}"
            )
        if not tensors[name].is_floating_point():
            raise CheckpointError(f"{where}: {name} is stored as {tensors[name].dtype}; a float type was expected.")
    source: dict[str, str] = {}
    for name in sorted(found):
        first = source.setdefault(names[name], name)
        if not torch.equal(tensors[first], tensors[name]):
            raise CheckpointError(
                f"{where}: config.json says layer_sharing={config.layer_sharing!r}, but {first} and {name} differ; "
                'remove the key "robal" from config.json to load the layers as separate ones.'
            )
    unused = set(tensors) - found
    if "masked_lm.bias" in parameters:
        unused -= _check_decoder(config, tensors, where)
    with torch.no_grad():
        for ours, name in source.items():
            parameters[ours].copy_(tensors[name])
    return sorted(set(parameters) - source.keys()), sorted(unused)


def _remedy(name: str) -> str:
    if name.startswith("classifier"):
        return " Its labels are other ones than those asked for: ask for a new head (--new-head) to train one."
    return " The two files do not belong together."


def _check_encoder(config: EncoderConfig, names: Mapping[str, str], tensors: Mapping[str, Tensor], where: str) -> None:
    """Every encoder tensor is there, and the file has no encoder tensor that the configuration does not mention."""
    needed = {name for name, ours in names.items() if ours.startswith("encoder.")}
    missing = needed - tensors.keys()
    if missing == needed:
        raise CheckpointError(
            f"{where}: matched 0 of {len(tensors)} tensors; the file has names such as {listing(tensors, limit=2)} where "
            f"{listing(needed, limit=2)} were expected. If only a prefix differs, rename the tensors without it."
        )
    if missing:
        raise CheckpointError(f"{where}: {len(missing)} encoder tensors are missing: {listing(missing, limit=4)}.")
    prefixes = (f"{config.family.name}.embeddings.", f"{config.family.name}.encoder.")
    if surplus := {name for name in tensors if name.startswith(prefixes)} - names.keys():
        raise CheckpointError(
            f"{where}: {len(surplus)} encoder tensors have no place in the model that config.json describes: "
            f"{listing(surplus, limit=4)}. The two files do not belong together."
        )


def _check_decoder(config: EncoderConfig, tensors: Mapping[str, Tensor], where: str) -> set[str]:
    """The stored copies of tied tensors, after a check that copies is what they are."""
    head = config.family.renames["masked_lm"]
    copies = {f"{head}.decoder.bias": f"{head}.bias"}
    if config.tie_word_embeddings:
        copies[f"{head}.decoder.weight"] = f"{config.family.name}.embeddings.word_embeddings.weight"
    for copy, original in copies.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise CheckpointError(
                f"{where}: {copy} differs from {original}, and config.json says that they are one tensor; set "
                '"tie_word_embeddings": false in config.json to keep the decoder, or remove it from the file.'
            )
    return set(copies) & tensors.keys()
