"""All visits become one plain dictionary, the report; JSON, Markdown and HTML are written from it and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean, median
from typing import Any

import numpy as np

from loadtests import estimates
from loadtests.compare import Plan, Stretch, Subject, Visit
from loadtests.estimates import Estimate
from loadtests.records import Request, doubts, faults, health, latencies
from loadtests.verdict import Claim, Comparison, clauses, judge, rounds_needed, sentence

SCHEMA = "robal.loadtest.compare/1"
"""Grows by new fields; the number changes when a field changes its meaning."""
PERCENTS = (50, 95, 99)
TELLING_TOKENS = 0.01
"""Difference in tokens for the same texts that is worth a note."""
TELLING_CORES = 0.1
"""Share of the usable cores kept busy by strangers that is worth a note."""
BANDS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


def build_report(
    subjects: Sequence[Subject],
    plan: Plan,
    visits: Sequence[Visit],
    *,
    machine: Mapping[str, Any],
    traffic: Mapping[str, Any],
    command: str,
    created: str,
) -> dict[str, Any]:
    """Everything that was found, as JSON values.

    Args:
        subjects: A, the baseline, and B.
        plan: what was planned.
        visits: what happened, in order.
        machine: from ``describe_machine``.
        traffic: where the texts came from, and their sha256.
        command: the command line that repeats it.
        created: ISO date and time.
    """
    lives = [[visit for visit in visits if visit.subject == index] for index in (0, 1)]
    bundles = [_bundle(subject, life) for subject, life in zip(subjects, lives, strict=True)]
    levels = []
    reasons: list[str] = []
    notes: list[str] = []
    for position, users in enumerate(plan.users):
        stretches = [[visit.stretches[position] for visit in life] for life in lives]
        for subject, own in zip(subjects, stretches, strict=True):
            label = f"{subject.name} with {_users(users)}"
            runs = [stretch.run for stretch in own]
            found = faults(runs)
            reasons += [f"{label}: {fault}" for fault in found]
            notes += [] if found else [f"{label}: {doubt}." for doubt in doubts(runs)]
        levels.append(_level(users, stretches, plan))
    tokens_ratio = _tokens_ratio(lives)
    claim = _claim(bundles, levels, plan, reasons)
    return {
        "schema": SCHEMA,
        "created": created,
        "verdict": {
            "sentence": sentence(claim),
            "clauses": clauses(claim),
            "valid": not reasons,
            "reasons": reasons,
            "notes": [*_notes(bundles, levels, plan, machine, tokens_ratio), *notes],
            "margin": plan.margin,
        },
        "bundles": bundles,
        "levels": levels,
        "tokens_ratio": tokens_ratio,
        "method": {
            "loop": "closed",
            "order": "".join("AB"[visit.subject] for visit in visits),
            "rounds": plan.rounds,
            "warmup_s": plan.warmup_s,
            "measured_s": plan.seconds,
            "threads": plan.threads,
            "seed": plan.seed,
        },
        "traffic": dict(traffic),
        "machine": dict(machine),
        "command": command,
    }


def _bundle(subject: Subject, life: Sequence[Visit]) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(subject).items() if key != "command"}
    pss = [visit.after_load.pss_bytes for visit in life if visit.after_load.pss_bytes is not None]
    return facts | {
        "start_s": median(visit.start_s for visit in life),
        "memory": {
            "at_start_rss_bytes": int(median(visit.at_start.rss_bytes for visit in life)),
            "peak_rss_bytes": int(median(visit.peak_rss_bytes for visit in life)),
            "after_load_rss_bytes": int(median(visit.after_load.rss_bytes for visit in life)),
            "after_load_pss_bytes": int(median(pss)) if pss else None,
            "processes": life[-1].after_load.processes,
        },
    }


def _level(users: int, stretches: Sequence[Sequence[Stretch]], plan: Plan) -> dict[str, Any]:
    level: dict[str, Any] = {"users": users, "bundles": [_measured(own, plan.seed) for own in stretches]}
    answered = [[stretch.run.answered() for stretch in own] for own in stretches]
    if not all(requests for own in answered for requests in own):
        return level | {"ratios": None, "bands": []}
    samples = [[latencies(requests) for requests in own] for own in answered]
    ratios = {
        f"p{percent}": _judged(
            estimates.estimate_percentile_ratio(samples[0], samples[1], percent, seed=plan.seed), plan
        )
        for percent in PERCENTS
    }
    rates = [_rates(own) for own in stretches]
    ratios["throughput"] = _judged(
        estimates.estimate_rate_ratio(rates[0], rates[1], seed=plan.seed), plan, higher_is_better=True
    )
    return level | {"ratios": ratios, "bands": _bands(answered, plan)}


def _measured(own: Sequence[Stretch], seed: int) -> dict[str, Any]:
    """One bundle at one number of users."""
    runs = [stretch.run for stretch in own]
    steady = [request for run in runs for request in run.phase("steady")]
    answered = [run.answered() for run in runs]
    everyone = [request for requests in answered for request in requests]
    counts = {name: sum(r.outcome == name for r in steady) for name in ("ok", "refused", "error", "wrong")}
    warm = [run.phase("warm-up") for run in runs]
    served = sum(request.texts for run in runs for request in run.requests if request.outcome == "ok")
    measured: dict[str, Any] = {
        "requests": {"steady": len(steady), **counts},
        "latency_ms": None,
        "warmup": {
            "requests": sum(map(len, warm)),
            "first_ms": median(requests[0].latency_ms for requests in warm) if all(warm) else None,
        },
        "cooldown": {"requests": sum(len(run.phase("cool-down")) for run in runs)},
        "generator": asdict(health(runs)),
        "other_busy_cores": mean(stretch.other_cores for stretch in own),
    }
    if not all(answered):
        return measured
    samples = [latencies(requests) for requests in answered]
    pooled = np.concatenate(samples)
    rates = _rates(own)
    tokens = [(float(sum(r.tokens for r in run.completed())), run.measured_s) for run in runs]
    return measured | {
        "latency_ms": {
            **{f"p{p}": asdict(estimates.estimate_percentile(samples, p, seed=seed)) for p in PERCENTS},
            "mean": float(pooled.mean()),
            "max": float(pooled.max()),
        },
        "percentiles_ms": [float(value) for value in np.percentile(pooled, range(101))],
        "p50_by_round_ms": [float(np.median(sample)) for sample in samples],
        "requests_per_s": asdict(estimates.estimate_rate(rates, seed=seed)),
        "tokens_per_s": asdict(estimates.estimate_rate(tokens, seed=seed)),
        "tokens_per_text": sum(r.tokens for r in everyone) / sum(r.texts for r in everyone),
        "server_cpu_s_per_1000_texts": 1000 * sum(stretch.server_cpu_s for stretch in own) / served,
        "stages_ms": _stages(everyone),
    }


def _stages(requests: Sequence[Request]) -> dict[str, float] | None:
    """Mean time of each part of a request; they add up to the mean latency. None if the server does not tell."""
    names = ("tokenize", "queue", "engine")
    if not all({*names, "total"} <= request.stages_ms.keys() for request in requests):
        return None
    stages = {name: mean(request.stages_ms[name] for request in requests) for name in names}
    total = mean(request.stages_ms["total"] for request in requests)
    stages["rest of the server"] = total - sum(stages.values())
    stages["outside the server"] = mean(request.latency_ms for request in requests) - total
    return stages


def _rates(own: Sequence[Stretch]) -> list[tuple[float, float]]:
    return [(float(len(stretch.run.completed())), stretch.run.measured_s) for stretch in own]


def _bands(answered: Sequence[Sequence[Sequence[Request]]], plan: Plan) -> list[dict[str, Any]]:
    """The median's ratio for each quarter of the texts by length in characters, which no tokenizer changes."""
    lengths = [request.characters for own in answered for requests in own for request in requests]
    edges = np.percentile(lengths, [25, 50, 75])
    if len(set(edges)) < len(edges):
        return []  # so many texts have one length that there are no quarters
    bands = []
    for number, name in enumerate(BANDS):
        own_rounds = [
            [[r for r in requests if np.searchsorted(edges, r.characters) == number] for requests in own]
            for own in answered
        ]
        if not all(requests for own in own_rounds for requests in own):
            continue  # a round is too short to hold all lengths
        a, b = ([latencies(requests) for requests in own] for own in own_rounds)
        everyone = [request for own in own_rounds for requests in own for request in requests]
        bands.append(
            {
                "name": name,
                "characters": [min(r.characters for r in everyone), max(r.characters for r in everyone)],
                "tokens": [float(np.median([r.tokens for round_ in own for r in round_])) for own in own_rounds],
                "p50_ms": [estimates.percentile(a, 50), estimates.percentile(b, 50)],
                "ratio": _judged(estimates.estimate_percentile_ratio(a, b, 50, seed=plan.seed), plan),
            }
        )
    return bands


def _judged(ratio: Estimate, plan: Plan, *, higher_is_better: bool = False) -> dict[str, Any]:
    verdict = judge(ratio, margin=plan.margin, higher_is_better=higher_is_better)
    is_open = verdict == "not enough data"
    needed = rounds_needed(ratio, rounds=plan.rounds, margin=plan.margin) if is_open else None
    return asdict(ratio) | {"verdict": verdict, "rounds_needed": needed}


def _claim(
    bundles: Sequence[dict[str, Any]], levels: Sequence[dict[str, Any]], plan: Plan, reasons: Sequence[str]
) -> Claim:
    comparisons, bands = [], []
    for level in levels:
        if level["ratios"] is None:
            continue
        users = f"with {_users(level['users'])}"
        comparisons.append(Comparison(what=f"{users} its median latency", ratio=_estimate(level["ratios"]["p50"])))
        for band in level["bands"]:
            tokens = mean(band["tokens"])
            what = f"{users}, for the {band['name']} of the texts (about {tokens:.0f} tokens), it"
            if band["ratio"]["verdict"] != level["ratios"]["p50"]["verdict"]:
                bands.append(Comparison(what=what, ratio=_estimate(band["ratio"])))
    if len(levels) > 1 and levels[-1]["ratios"] is not None:
        comparisons.append(
            Comparison(
                what=f"its throughput with {_users(levels[-1]['users'])}",
                ratio=_estimate(levels[-1]["ratios"]["throughput"]),
                higher_is_better=True,
            )
        )
    a, b = bundles
    return Claim(
        a=a["name"],
        b=b["name"],
        size_ratio=b["size_bytes"] / a["size_bytes"],
        memory_ratio=b["memory"]["after_load_rss_bytes"] / a["memory"]["after_load_rss_bytes"],
        comparisons=comparisons,
        bands=bands,
        rounds=plan.rounds,
        margin=plan.margin,
        reasons=reasons,
    )


def _notes(
    bundles: Sequence[dict[str, Any]],
    levels: Sequence[dict[str, Any]],
    plan: Plan,
    machine: Mapping[str, Any],
    tokens_ratio: float | None,
) -> list[str]:
    """What a careful reader should know before believing the numbers."""
    notes = []
    a, b = bundles
    if a["sha256"] == b["sha256"]:
        notes.append("Both bundles are the same one.")
    if tokens_ratio is not None and abs(tokens_ratio - 1) > TELLING_TOKENS:
        notes.append(
            f"The tokenizers differ: {b['name']} cuts the same texts into {tokens_ratio:.2f}x as many tokens as "
            f"{a['name']}; the latencies include that."
        )
    busy = max(measured["other_busy_cores"] for level in levels for measured in level["bundles"])
    if busy > TELLING_CORES * machine["cores_usable"]:
        notes.append(f"Other programs kept up to {busy:.1f} cores busy while it was measured; close them and repeat.")
    if plan.threads >= machine["cores_usable"]:
        notes.append("The server may use every core, so the load generator takes processor time from it.")
    if plan.rounds < estimates.MIN_ROUNDS:
        notes.append(f"Fewer than {estimates.MIN_ROUNDS} rounds carry no interval and no verdict.")
    return notes


def _tokens_ratio(lives: Sequence[Sequence[Visit]]) -> float | None:
    """Tokens that B makes of the texts that both answered, over those that A makes; None if there are none."""
    tokens = [
        {
            request.index: request.tokens
            for visit in life
            for stretch in visit.stretches
            for request in stretch.run.requests
            if request.outcome == "ok"
        }
        for life in lives
    ]
    both = tokens[0].keys() & tokens[1].keys()
    return sum(tokens[1][index] for index in both) / sum(tokens[0][index] for index in both) if both else None


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(value=values["value"], low=values["low"], high=values["high"])


def _users(users: int) -> str:
    return "1 user" if users == 1 else f"{users} users"
