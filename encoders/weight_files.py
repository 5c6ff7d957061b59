"""Reading and writing the files that hold tensors: safetensors, sharded safetensors, and pickles of only tensors.

A pickle can run code when it is opened. ``pytorch_model.bin`` is read by PyTorch's restricted loader, which accepts
plain tensors and nothing else; what it refuses stays closed. There is no other way in.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """Names of the tensors in a model folder, without reading their data. Raises as ``read_tensors``."""
    names: list[str] = []
    for path in _files(folder):
        if path.name == PICKLE:
            names += _read_pickle(path)
        else:
            with _safetensors(path) as file:
                names += file.keys()
    return tuple(names)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model folder by their names in the file, in the type that they are stored in.

    Raises:
        CheckpointError: no weights, a damaged file, a missing shard, or a pickle that is more than tensors.
    """
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        if path.name == PICKLE:
            tensors |= _read_pickle(path)
        else:
            with _safetensors(path) as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write a safetensors file as transformers does. Each name gets a copy: the format has no two names for one."""
    copies = {name: tensor.detach().to("cpu", dtype, copy=True).contiguous() for name, tensor in tensors.items()}
    save_file(copies, path, metadata={"format": "pt"})


def _files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights; safetensors before pickle where both exist."""
    if (folder / SAFETENSORS).is_file():
        return [folder / SAFETENSORS]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / PICKLE).is_file():
        return [folder / PICKLE]
    others = [path.name for path in folder.iterdir() if path.suffix in (".h5", ".msgpack", ".ckpt", ".pt", ".bin")]
    remedy = f"{listing(others)} cannot be read: {CONVERT}" if others else "copy the whole model folder"
    raise CheckpointError(f"{folder} has no weights, neither {SAFETENSORS} nor {PICKLE}; {remedy}.")


def _shards(folder: Path) -> list[Path]:
    index = read_json(folder / INDEX, CheckpointError).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise CheckpointError(f"{folder / INDEX} has no weight_map that names its shards; copy the model again.")
    names = sorted(set(map(str, index.values())))
    if strange := [name for name in names if Path(name).name != name]:
        raise CheckpointError(f"{folder / INDEX} names {listing(strange)}; plain file names were expected.")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise CheckpointError(f"{folder} lacks {listing(missing)}, which {INDEX} lists; copy the model again.")
    return [folder / name for name in names]


@contextmanager
def _safetensors(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(_damaged(path, str(error))) from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        # A zip archive is mapped, so that asking for names alone reads no data.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted is None:
            raise CheckpointError(_damaged(path, "it is no pickle of tensors")) from None
        raise CheckpointError(
            f"{path} is a pickle that asks for {wanted[1]}: it holds more than tensors and could run code, so it stays "
            f"closed; {CONVERT}."
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        raise CheckpointError(_damaged(path, str(error))) from None
    if not isinstance(content, Mapping) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise CheckpointError(f"{path} does not hold a plain dictionary of tensors; {CONVERT}.")
    return dict(content)


def _damaged(path: Path, reason: str) -> str:
    with path.open("rb") as file:
        if file.read(20) == b"version https://git-":
            return f"{path} is a Git LFS pointer, not the weights; run `git lfs pull` in its repository."
    return f"{path} is damaged ({reason.partition(chr(10))[0] or 'it ends too early'}); copy it again."
