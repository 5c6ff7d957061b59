"""Conditions on a report, for automatic checks: ``p99_ms < 50``, ``albert.size_bytes < 0.2 * roberta.size_bytes``.

A condition compares sums, products and ratios of figures. ``NAME.figure`` is that of one service: by its name, or its
family, in which everything but letters and digits is ``_``, or by its letter, ``a`` for the first. A figure without a
name must hold for each service. Figures of time are those of each load in turn, and the condition must hold at each.
"""

from __future__ import annotations

import ast
import operator
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.errors import UsageError, listing

FIGURES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float | None]] = {
    "size_bytes": lambda subject, measured: subject["size_bytes"],
    "parameters": lambda subject, measured: subject["parameters"],
    "unique_parameters": lambda subject, measured: subject["unique_parameters"],
    "memory_bytes": lambda subject, measured: subject["memory"] and subject["memory"]["after_load_rss_bytes"],
    "start_s": lambda subject, measured: subject["start_s"],
    **{
        f"p{percent}_ms": lambda subject, measured, name=f"p{percent}": (  # type: ignore[misc]
            measured["latency_ms"] and measured["latency_ms"][name]["value"]
        )
        for percent in (50, 95, 99)
    },
    "requests_per_s": lambda subject, measured: measured.get("requests_per_s", {}).get("value", 0.0),
    "texts_per_s": lambda subject, measured: measured.get("texts_per_s", {}).get("value", 0.0),
    "goodput_per_s": lambda subject, measured: measured["goodput_per_s"],
    "errors": lambda subject, measured: measured["requests"]["error"],
    "refused": lambda subject, measured: measured["requests"]["refused"],
    "wrong": lambda subject, measured: measured["requests"]["wrong"],
    "dropped": lambda subject, measured: measured["requests"]["dropped"],
    "mislabelled": lambda subject, measured: measured["requests"]["mislabelled_texts"],
    "cpu_s_per_1000_texts": lambda subject, measured: measured.get("server_cpu_s_per_1000_texts"),
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
GRAMMAR = "such as 'p99_ms < 50' or 'b.size_bytes < 0.2 * a.size_bytes' was expected"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of one condition."""

    condition: str
    problem: str | None
    """Where it does not hold, and with which numbers; None when it holds."""


def parse(condition: str) -> ast.Compare:
    """Read a condition, before anything is measured.

    Raises:
        UsageError: it is none, or names a figure that does not exist.
    """
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise UsageError(f"--assert {condition!r} cannot be read; a comparison {GRAMMAR}.") from None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in COMPARISONS:
        raise UsageError(f"--assert {condition!r} is not one comparison; one {GRAMMAR}.")
    for node in (tree.left, tree.comparators[0]):
        _check(node, condition)
    return tree


def check_names(conditions: Sequence[str], names: Sequence[str], families: Sequence[str | None]) -> None:
    """Raise UsageError for a condition on a service that is not measured."""
    known = _lookup(names, families)
    for condition in conditions:
        for node in ast.walk(parse(condition)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in known:
                raise UsageError(
                    f"--assert {condition!r}: {node.value.id} is not measured; known are {listing(known, 9)}."
                )


def check(condition: str, report: Mapping[str, Any]) -> Verdict:
    """Whether a condition holds in a report."""
    tree = parse(condition)
    subjects = report["subjects"]
    names = _lookup([subject["name"] for subject in subjects], [subject["family"] for subject in subjects])
    free = any(isinstance(n, ast.Name) and n.id in FIGURES for n in _free(tree))
    for level in report["levels"]:
        for own in range(len(subjects)) if free else (0,):

            def figure(name: str, who: int, level: Mapping[str, Any] = level) -> float:
                value = FIGURES[name](subjects[who], level["subjects"][who])
                if value is None:
                    raise UsageError(f"--assert {condition!r}: {name} of {subjects[who]['name']} is not known.")
                return float(value)

            left, right = (_value(node, figure, names, own) for node in (tree.left, tree.comparators[0]))
            if not COMPARISONS[type(tree.ops[0])](left, right):
                whose = f" of {subjects[own]['name']}" if free else ""
                return Verdict(condition=condition, problem=f"{left:.6g} and {right:.6g}{whose}, with {level['title']}")
    return Verdict(condition=condition, problem=None)


def junit(verdicts: Sequence[Verdict], report: Mapping[str, Any]) -> bytes:
    """The outcome as JUnit XML: a test case for each condition, and one for whether the run can be believed."""
    reasons = report["verdict"]["reasons"]
    cases = [("the run is valid", "; ".join(reasons) or None)]
    cases += [(verdict.condition, verdict.problem) for verdict in verdicts]
    failed = sum(problem is not None for _, problem in cases)
    suite = ElementTree.Element("testsuite", name="robal loadtest", tests=str(len(cases)), failures=str(failed))
    for name, problem in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="loadtest", name=name)
        if problem is not None:
            ElementTree.SubElement(case, "failure", message=problem)
    xml: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return xml


def _lookup(names: Sequence[str], families: Sequence[str | None]) -> dict[str, int]:
    """Index of each service by its name, by its family where only one has it, and by its letter: a, b, ..."""
    found = {chr(97 + index): index for index in range(len(names))}
    for index, family in enumerate(families):
        if family is not None and families.count(family) == 1:
            found[family] = index
    return found | {re.sub(r"\W", "_", name): index for index, name in enumerate(names)}


def _free(tree: ast.AST) -> list[ast.AST]:
    """Nodes that are not the owner in ``owner.figure``."""
    owners = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return [node for node in ast.walk(tree) if id(node) not in owners]


def _check(node: ast.expr, condition: str) -> None:
    match node:
        case ast.Constant(value=int() | float()):
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, condition)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            _check(left, condition)
            _check(right, condition)
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name):
            if name not in FIGURES:
                raise UsageError(f"--assert {condition!r}: {name} is not a figure; known are {listing(FIGURES, 30)}.")
        case _:
            raise UsageError(f"--assert {condition!r}: {ast.unparse(node)!r} is not allowed; a comparison {GRAMMAR}.")


def _value(node: ast.expr, figure: Callable[[str, int], float], names: Mapping[str, int], own: int) -> float:
    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, figure, names, own)
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](_value(left, figure, names, own), _value(right, figure, names, own))
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return figure(name, names[owner])
        case ast.Name(id=name):
            return figure(name, own)
        case _:
            raise AssertionError(ast.dump(node))
