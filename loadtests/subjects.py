"""What is measured: bundles, which are served here, and services that run already, by their address."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contract.errors import UsageError
from contract.manifest import MANIFEST_NAME, Manifest, load_manifest
from contract.storage import sha256_file
from loadtests.driver import check_url
from loadtests.protocols import protocol
from loadtests.servers import serve_command

MAX_SUBJECTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One of the services that are measured. What only a bundle tells is None for an address."""

    name: str
    source: str
    """The bundle or the address, as the user named it."""
    family: str | None = None
    precision: str | None = None
    parameters: int | None = None
    unique_parameters: int | None = None
    size_bytes: int | None = None
    """The graph and its weights."""
    sha256: str | None = None
    """Of the manifest, which holds the sha256 of every other file."""
    config: Mapping[str, Any] | None = None
    """The shape of the encoder, with the names of Hugging Face's ``config.json``."""
    command: Callable[[int], list[str]] | None = None
    """Command line that serves it on a port; None for an address."""
    api: str = "robal"
    model: str | None = None
    """Name by which the service knows its model, where its protocol asks for it."""


def open_subjects(
    sources: Sequence[str],
    *,
    precision: str,
    threads: int,
    apis: Sequence[str] = (),
    model: str | None = None,
    allow_remote: bool = False,
) -> tuple[Subject, ...]:
    """Read and verify bundles, check addresses; those of one name are told apart by their folders or letters.

    Args:
        sources: bundle folders or addresses; the first is the baseline.
        precision: which graph of the bundles to serve.
        threads: of each server.
        apis: protocol of each address, in order; the last one goes on, ``robal`` if there is none.
        model: for protocols that ask for a model by name.
        allow_remote: whether addresses may be those of other machines.

    Raises:
        BundleError: a bundle is missing, broken, edited, or lacks the precision.
        UsageError: an address or a protocol that cannot be used, or too many of them.
    """
    if len(sources) > MAX_SUBJECTS:
        raise UsageError(f"{len(sources)} services were given; at most {MAX_SUBJECTS} are compared at once.")
    spoken = list(apis or ["robal"])
    found: list[tuple[str, Subject]] = []
    for source in sources:
        if "://" in source or source.startswith(("http:", "https:")):
            check_url(source, allow_remote=allow_remote)
            api = spoken.pop(0) if len(spoken) > 1 else spoken[0]
            protocol(api, model=model)
            parts = urlsplit(source)
            found.append((source, Subject(name=parts.netloc + parts.path, source=source, api=api, model=model)))
        else:
            folder = Path(source)
            found.append((folder.absolute().name, _bundle(folder, precision=precision, threads=threads)))
    return _told_apart(found)


def _bundle(bundle: Path, *, precision: str, threads: int) -> Subject:
    manifest: Manifest = load_manifest(bundle)
    graph = manifest.graph(precision)
    folder = bundle.absolute()
    return Subject(
        name=manifest.name,
        source=str(bundle),
        family=manifest.family,
        precision=precision,
        parameters=manifest.parameters,
        unique_parameters=manifest.unique_parameters,
        size_bytes=sum((folder / file).stat().st_size for file in (graph.file, *graph.weights)),
        sha256=sha256_file(bundle / MANIFEST_NAME),
        config=json.loads((bundle / "config.json").read_text()),
        command=lambda port: serve_command(folder, port=port, threads=threads, precision=precision),
    )


def _told_apart(found: Sequence[tuple[str, Subject]]) -> tuple[Subject, ...]:
    """Subjects with names of their own: the bundle's, else the folder's, else with a letter."""
    names = [subject.name for _, subject in found]
    for others in ([folder for folder, _ in found], [f"{name} ({chr(65 + at)})" for at, name in enumerate(names)]):
        if len(set(names)) == len(names):
            break
        names = [other if names.count(name) > 1 else name for name, other in zip(names, others, strict=True)]
    return tuple(replace(subject, name=name) for name, (_, subject) in zip(names, found, strict=True))
