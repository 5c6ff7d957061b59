"""docs/bundle-format.md says what the code does: every field is described, and the example is a real manifest."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from contract.errors import BundleError
from contract.manifest import FORMAT_VERSION, Graph, Manifest, TensorSpec, load_manifest
from export import verify
from export.ops import IR_VERSION, OPSET
from tests.tiny import tiny_bundle

PAGE = (Path(__file__).parents[2] / "docs" / "bundle-format.md").read_text()


def described(heading: str) -> set[str]:
    """Names in the first column of the first table after a line."""
    table = PAGE.split(heading, 1)[1].strip().split("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.mark.parametrize(
    ("heading", "kind"), [("\n## Manifest\n", Manifest), ("\nA tensor:\n", TensorSpec), ("\nA graph:\n", Graph)]
)
def test_every_field_is_described_and_no_other(heading: str, kind: type) -> None:
    assert described(heading) == {field.name for field in fields(kind)}


def test_files_and_checks_are_those_of_a_real_bundle(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    listed = re.findall(r"`([\w.]+)`", "".join(row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| `")))
    assert {path.name for path in bundle.iterdir()} <= set(listed)
    assert described("\nThe gates of an fp32 graph:\n") == set(load_manifest(bundle).graphs[0].checks)


def test_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"opset {OPSET}, IR version {IR_VERSION}" in PAGE
    assert f"at most {verify.MAX_SIZE_RATIO['fp32']}, plus {verify.GRAPH_ALLOWANCE_BYTES // 1024} KiB" in PAGE
    assert f"at most {verify.MAX_SIZE_RATIO['int8']}, plus" in PAGE
    assert f"logits exceed {verify.LARGE_LOGIT:.0f}" in PAGE
    assert f"version of this format; {FORMAT_VERSION} |" in PAGE


def test_the_example_is_read_as_a_manifest(tmp_path: Path) -> None:
    example = PAGE.split("```json\n")[1].split("```")[0]
    (tmp_path / "manifest.json").write_text(example)
    with pytest.raises(BundleError, match=r"lacks the file 'config\.json'"):  # all of the manifest itself is right
        load_manifest(tmp_path)
    bundle = tiny_bundle(tmp_path / "bundle")
    assert json.loads(example).keys() == json.loads((bundle / "manifest.json").read_text()).keys()
