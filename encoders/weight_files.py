"""Reading and writing the files that hold tensors: safetensors, sharded safetensors, and pickles that are only tensors.

A pickle can run code when it is opened. ``pytorch_model.bin`` is read by PyTorch's restricted loader, which accepts plain
tensors and nothing else; what it refuses stays closed. There is no other way in.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contract.errors import CheckpointError, listing
from contract.storage import read_json

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
CONVERT = "convert it to model.safetensors where you trust it, for example with transformers' save_pretrained"


def read_names(folder: Path) -> tuple[str, ...]:
    """Names of the tensors in a folder, without reading safetensors' data."""
    if shards := _shards(folder):
        return tuple(name for shard in shards for name in _open_safetensors(shard, names_only=True))
    return tuple(_read_pickle(folder / PICKLE))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder, by its name in the file, in the type it is stored in.

    Raises:
        CheckpointError: no weights, a damaged file, a missing shard, or a pickle that is more than tensors.
    """
    if shards := _shards(folder):
        return {name: tensor for shard in shards for name, tensor in _open_safetensors(shard).items()}
    return _read_pickle(folder / PICKLE)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file as transformers does: contiguous, on the CPU, no two names for one storage."""
    whole = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    save_file(whole, path, metadata={"format": "pt"})


def _shards(folder: Path) -> list[Path]:
    """The safetensors files of a folder; none if its weights are a pickle."""
    if (folder / SAFETENSORS).is_file():
        return [folder / SAFETENSORS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX, CheckpointError).get("weight_map")
        if not isinstance(index, dict) or not index:
            raise CheckpointError(f"{folder / INDEX} has no weight_map that names its shards; copy the model again.")
        names = sorted(set(map(str, index.values())))
        if strange := [name for name in names if Path(name).name != name]:
            raise CheckpointError(f"{folder / INDEX} names {listing(strange)}; plain file names were expected.")
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise CheckpointError(f"{folder} lacks {listing(missing)} that {INDEX} lists; copy the model again.")
        return [folder / name for name in names]
    if (folder / PICKLE).is_file():
        return []
    others = sorted(
        path.name for path in folder.iterdir() if path.suffix in (".h5", ".msgpack", ".ckpt", ".pt", ".bin")
    )
    remedy = f"; {listing(others)} cannot be read: {CONVERT}" if others else "; copy the whole model folder"
    raise CheckpointError(f"{folder} has no weights: neither {SAFETENSORS} nor {PICKLE}{remedy}.")


def _open_safetensors(path: Path, *, names_only: bool = False) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: torch.empty(0) if names_only else file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); copy it again.") from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "Unsupported" in line or "GLOBAL" in line), "")
        raise CheckpointError(
            f"{path} is a pickle that holds more than tensors and could run code when opened, so it stays closed"
            f"{f' ({reason.strip()})' if reason else ''}; {CONVERT}."
        ) from None
    except (RuntimeError, EOFError, OSError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is damaged ({str(error).splitlines()[0]}); copy it again.") from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise CheckpointError(f"{path} does not hold a plain dictionary of tensors; {CONVERT}.")
    return dict(content)
