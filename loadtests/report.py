"""All visits become one plain dictionary, the report; JSON, Markdown and HTML are written from it and nothing else.

``subjects`` and every list of ratios have one place for each service, the baseline first; its own ratios are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean, median
from typing import Any

import numpy as np

from loadtests import estimates
from loadtests.compare import Plan, Stretch, Visit
from loadtests.costs import flops_per_token
from loadtests.estimates import Estimate
from loadtests.load import Floats
from loadtests.records import FAILURES, Request, Run, doubts, faults, health, latencies
from loadtests.subjects import Subject
from loadtests.verdict import Claim, Comparison, Rival, clauses, judge, rounds_needed, sentence

SCHEMA = "robal.loadtest/2"
"""Grows by new fields; the number changes when a field changes its meaning."""
PERCENTS = (50, 95, 99)
BLOCKS = 20
"""Parts of a lone long stretch that take the place of rounds for its intervals."""
TELLING_TOKENS = 0.01
"""Difference in tokens for the same texts that is worth a note."""
TELLING_CORES = 0.1
"""Share of the usable cores kept busy by strangers that is worth a note."""
TELLING_DRIFT = 0.1
"""Change of the machine's own speed between visits that is worth a note."""
BANDS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What is drawn with replacement for an interval: a round's stretch, or a part of a lone one."""

    answered: Sequence[Request]
    """Right answers to requests that were due in its time."""
    completed: Sequence[Request]
    """Right answers that arrived in its time."""
    seconds: float

    @property
    def latencies(self) -> Floats:
        """Of the answered requests, in ms."""
        return latencies(self.answered)


def units(runs: Sequence[Run]) -> list[Unit]:
    """Each round's stretch; a lone stretch is cut into equal parts of time."""
    if len(runs) > 1:
        return [Unit(answered=run.answered(), completed=run.completed(), seconds=run.measured_s) for run in runs]
    (run,) = runs
    edges = np.linspace(run.steady_from_s, max(run.steady_from_s, run.steady_until_s), BLOCKS + 1)
    parts = [
        Unit(
            answered=[request for request in run.answered() if low <= request.sent_s < high],
            completed=[request for request in run.completed() if low <= request.done_s < high],
            seconds=float(high - low),
        )
        for low, high in pairwise(edges)
    ]
    if all(part.answered for part in parts):
        return parts
    return [Unit(answered=run.answered(), completed=run.completed(), seconds=run.measured_s)]


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
        subjects: A, the baseline, and the others.
        plan: what was planned.
        visits: what happened, in order.
        machine: from ``describe_machine``.
        traffic: where the texts came from, and their sha256.
        command: the command line that repeats it.
        created: ISO date and time.
    """
    lives = [[visit for visit in visits if visit.subject == index] for index in range(len(subjects))]
    told = [_subject(subject, life) for subject, life in zip(subjects, lives, strict=True)]
    levels = []
    reasons: list[str] = []
    notes: list[str] = []
    for position, load in enumerate(plan.loads):
        stretches = [[visit.stretches[position] for visit in life] for life in lives]
        for subject, own in zip(subjects, stretches, strict=True):
            label = f"{subject.name} with {load.title}"
            runs = [stretch.run for stretch in own]
            found = faults(runs)
            reasons += [f"{label}: {fault}" for fault in found]
            notes += [] if found else [f"{label}: {doubt}." for doubt in doubts(runs)]
        levels.append({"title": load.title, **load.facts(), **_level(stretches, plan)})
    tokens_ratios = [_tokens_ratio(lives[0], life) for life in lives]
    claim = _claim(told, levels, plan, reasons)
    return {
        "schema": SCHEMA,
        "created": created,
        "verdict": {
            "sentence": sentence(claim),
            "clauses": clauses(claim),
            "valid": not reasons,
            "reasons": reasons,
            "notes": [*_notes(told, levels, plan, machine, visits, tokens_ratios), *notes],
            "margin": plan.margin,
        },
        "subjects": told,
        "levels": levels,
        "tokens_ratios": tokens_ratios,
        "method": {
            "order": "".join(chr(65 + visit.subject) for visit in visits),
            "rounds": plan.rounds,
            "warmup_s": plan.loads[0].warmup_s,
            "measured_s": plan.loads[0].seconds,
            "processes": plan.loads[0].processes,
            "max_in_flight": plan.loads[0].max_in_flight,
            "threads": plan.threads,
            "cores": plan.cores,
            "target_ms": plan.target_ms,
            "seed": plan.seed,
            "calibration_ms": [visit.calibration_ms for visit in visits],
        },
        "traffic": dict(traffic),
        "machine": dict(machine),
        "command": command,
    }


def _subject(subject: Subject, life: Sequence[Visit]) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(subject).items() if key not in ("command", "config")}
    facts["flops_per_token"] = flops_per_token(subject.config) if subject.config else None
    ours = [(visit.start_s, visit.at_start, visit.after_load, visit.peak_rss_bytes) for visit in life]
    known = [
        (start_s, at_start, after_load, peak)
        for start_s, at_start, after_load, peak in ours
        if start_s is not None and at_start is not None and after_load is not None and peak is not None
    ]
    if not known:
        return facts | {"start_s": None, "memory": None}
    pss = [after_load.pss_bytes for _, _, after_load, _ in known if after_load.pss_bytes is not None]
    return facts | {
        "start_s": median(start_s for start_s, _, _, _ in known),
        "memory": {
            "at_start_rss_bytes": int(median(at_start.rss_bytes for _, at_start, _, _ in known)),
            "peak_rss_bytes": int(median(peak for _, _, _, peak in known)),
            "after_load_rss_bytes": int(median(after_load.rss_bytes for _, _, after_load, _ in known)),
            "after_load_pss_bytes": int(median(pss)) if pss else None,
            "processes": known[-1][2].processes,
        },
    }


def _level(stretches: Sequence[Sequence[Stretch]], plan: Plan) -> dict[str, Any]:
    parts = [units([stretch.run for stretch in own]) for own in stretches]
    level: dict[str, Any] = {
        "subjects": [_measured(own, part, plan) for own, part in zip(stretches, parts, strict=True)]
    }
    answered = all(unit.answered for own in parts for unit in own)
    others = range(1, len(parts))
    level["ratios"] = [None, *(_ratios(parts[0], parts[other], plan) if answered else None for other in others)]
    level["bands"] = [None, *(_bands(parts[0], parts[other], plan) if answered else [] for other in others)]
    return level


def _ratios(a: Sequence[Unit], b: Sequence[Unit], plan: Plan) -> dict[str, Any] | None:
    if len(a) != len(b):
        return None
    samples = [[unit.latencies for unit in own] for own in (a, b)]
    ratios = {
        f"p{percent}": _judged(
            estimates.estimate_percentile_ratio(samples[0], samples[1], percent, seed=plan.seed), plan
        )
        for percent in PERCENTS
    }
    ratios["throughput"] = _judged(
        estimates.estimate_rate_ratio(_rates(a), _rates(b), seed=plan.seed), plan, higher_is_better=True
    )
    return ratios


def _measured(own: Sequence[Stretch], parts: Sequence[Unit], plan: Plan) -> dict[str, Any]:
    """One service at one load."""
    runs = [stretch.run for stretch in own]
    steady = [request for run in runs for request in run.phase("steady")]
    everyone = [request for part in parts for request in part.answered]
    counts = {name: sum(r.outcome == name for r in steady) for name in ("ok", *FAILURES)}
    warm = [run.phase("warm-up") for run in runs]
    seconds = sum(run.measured_s for run in runs)
    measured: dict[str, Any] = {
        "requests": {"steady": len(steady), **counts, "mislabelled_texts": sum(r.mislabelled for r in everyone)},
        "latency_ms": None,
        "warmup": {
            "requests": sum(map(len, warm)),
            "first_ms": median(requests[0].latency_ms for requests in warm) if all(warm) else None,
        },
        "cooldown": {"requests": sum(len(run.phase("cool-down")) for run in runs)},
        "generator": asdict(health(runs)),
        "other_busy_cores": _mean([stretch.other_cores for stretch in own]),
        "arrivals_per_s": len(steady) / seconds if seconds else None,
        "goodput_per_s": sum(_good(request, plan.target_ms) for request in everyone) / seconds if seconds else None,
    }
    if not all(part.answered for part in parts):
        return measured
    samples = [part.latencies for part in parts]
    pooled = np.concatenate(samples)
    rates = _rates(parts)
    tokens = [(float(sum(r.tokens for r in part.completed)), part.seconds) for part in parts]
    texts = [(float(sum(r.texts for r in part.completed)), part.seconds) for part in parts]
    served = sum(request.texts for run in runs for request in run.requests if request.outcome == "ok")
    cpu = [stretch.server_cpu_s for stretch in own if stretch.server_cpu_s is not None]
    return measured | {
        "latency_ms": {
            **{f"p{p}": asdict(estimates.estimate_percentile(samples, p, seed=plan.seed)) for p in PERCENTS},
            "mean": float(pooled.mean()),
            "max": float(pooled.max()),
        },
        "percentiles_ms": [float(value) for value in np.percentile(pooled, range(101))],
        "p50_by_round_ms": [float(np.median(sample)) for sample in samples],
        "requests_per_s": asdict(estimates.estimate_rate(rates, seed=plan.seed)),
        "texts_per_s": asdict(estimates.estimate_rate(texts, seed=plan.seed)),
        "tokens_per_s": asdict(estimates.estimate_rate(tokens, seed=plan.seed)) if all(t for t, _ in tokens) else None,
        "tokens_per_text": sum(r.tokens for r in everyone) / sum(r.texts for r in everyone) or None,
        "server_cpu_s_per_1000_texts": 1000 * sum(cpu) / served if cpu else None,
        "stages_ms": _stages(everyone),
    }


def _good(request: Request, target_ms: float | None) -> bool:
    """Whether an answer is of use: right, and in time."""
    return request.mislabelled == 0 and (target_ms is None or request.latency_ms <= target_ms)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


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


def _rates(parts: Sequence[Unit]) -> list[tuple[float, float]]:
    return [(float(len(part.completed)), part.seconds) for part in parts]


def _bands(first: Sequence[Unit], second: Sequence[Unit], plan: Plan) -> list[dict[str, Any]]:
    """The median's ratio for each quarter of the texts by length in characters, which no tokenizer changes."""
    answered = [[unit.answered for unit in own] for own in (first, second)]
    lengths = [request.characters for own in answered for requests in own for request in requests]
    edges = np.percentile(lengths, [25, 50, 75])
    if len(set(edges)) < len(edges) or len(first) != len(second):
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
    subjects: Sequence[dict[str, Any]], levels: Sequence[dict[str, Any]], plan: Plan, reasons: Sequence[str]
) -> Claim:
    a, *others = subjects
    rivals = [
        Rival(
            name=subject["name"],
            size_ratio=_over(subject["size_bytes"], a["size_bytes"]),
            memory_ratio=_over(_memory(subject), _memory(a)),
            comparisons=_comparisons(levels, number),
            bands=_band_comparisons(levels, number),
        )
        for number, subject in enumerate(others, 1)
    ]
    return Claim(
        a=a["name"],
        rivals=rivals,
        alone=_alone(a, levels, plan),
        rounds=plan.rounds,
        margin=plan.margin,
        reasons=reasons,
    )


def _alone(subject: Mapping[str, Any], levels: Sequence[dict[str, Any]], plan: Plan) -> list[str]:
    """What is said of a service that is compared with none."""
    said = []
    for level in levels:
        (measured, *_) = level["subjects"]
        if measured["latency_ms"] is None:
            continue
        latency = measured["latency_ms"]
        words = f"with {level['title']}, {subject['name']} answers half of the requests within "
        words += f"{latency['p50']['value']:.1f} ms and 99% within {latency['p99']['value']:.1f} ms"
        words += f" ({measured['requests_per_s']['value']:.1f} requests/s)"
        if plan.target_ms is not None:
            share = measured["goodput_per_s"] / measured["arrivals_per_s"]
            words += f"; {share:.1%} are right and within {plan.target_ms:g} ms"
        said.append(words)
    return said


def _comparisons(levels: Sequence[dict[str, Any]], number: int) -> list[Comparison]:
    known = [level for level in levels if level["ratios"][number] is not None]
    found = [
        Comparison(what=f"with {level['title']} its median latency", ratio=_estimate(level["ratios"][number]["p50"]))
        for level in known
    ]
    closed = [level for level in known if level["loop"] == "closed"]
    if len(closed) > 1:
        busiest = closed[-1]
        what = f"its throughput with {busiest['title']}"
        ratio = _estimate(busiest["ratios"][number]["throughput"])
        found.append(Comparison(what=what, ratio=ratio, higher_is_better=True))
    return found


def _band_comparisons(levels: Sequence[dict[str, Any]], number: int) -> list[Comparison]:
    """Quarters of the texts whose verdict is not that of all."""
    return [
        Comparison(
            what=f"with {level['title']}, for the {band['name']} of the texts "
            f"(about {mean(band['tokens']):.0f} tokens), it",
            ratio=_estimate(band["ratio"]),
        )
        for level in levels
        if level["ratios"][number] is not None
        for band in level["bands"][number]
        if band["ratio"]["verdict"] != level["ratios"][number]["p50"]["verdict"]
    ]


def _memory(subject: Mapping[str, Any]) -> float | None:
    return subject["memory"]["after_load_rss_bytes"] if subject["memory"] else None


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base


def _notes(
    subjects: Sequence[dict[str, Any]],
    levels: Sequence[dict[str, Any]],
    plan: Plan,
    machine: Mapping[str, Any],
    visits: Sequence[Visit],
    tokens_ratios: Sequence[float | None],
) -> list[str]:
    """What a careful reader should know before believing the numbers."""
    notes = []
    a = subjects[0]
    for subject, ratio in zip(subjects[1:], tokens_ratios[1:], strict=True):
        if subject["sha256"] is not None and subject["sha256"] == a["sha256"]:
            notes.append(f"{a['name']} and {subject['name']} are the same bundle.")
        if ratio is not None and abs(ratio - 1) > TELLING_TOKENS:
            notes.append(
                f"The tokenizers differ: {subject['name']} cuts the same texts into {ratio:.2f}x as many tokens as "
                f"{a['name']}; the latencies include that."
            )
    for level in levels:
        for subject, measured in zip(subjects, level["subjects"], strict=True):
            if wrong := measured["requests"]["mislabelled_texts"]:
                notes.append(
                    f"{subject['name']} with {level['title']}: {wrong} answers have another label than expected."
                )
    busy = max((m["other_busy_cores"] or 0.0 for level in levels for m in level["subjects"]), default=0.0)
    if busy > TELLING_CORES * machine["cores_usable"]:
        notes.append(f"Other programs kept up to {busy:.1f} cores busy while it was measured; close them and repeat.")
    speeds = [visit.calibration_ms for visit in visits]
    if max(speeds) / min(speeds) > 1 + TELLING_DRIFT:
        notes.append(
            f"The machine's own speed changed while it was measured: a fixed piece of work took {min(speeds):.2f} to "
            f"{max(speeds):.2f} ms."
        )
    if plan.threads >= machine["cores_usable"] and any(subject["sha256"] for subject in subjects):
        notes.append("The server may use every core, so the load generator takes processor time from it.")
    if 1 < plan.rounds < estimates.MIN_ROUNDS or (plan.rounds == 1 and len(subjects) > 1):
        notes.append(f"Fewer than {estimates.MIN_ROUNDS} rounds carry no interval and no verdict.")
    return notes


def _tokens_ratio(first: Sequence[Visit], second: Sequence[Visit]) -> float | None:
    """Tokens that B makes of the texts that both answered, over those that A makes; None if nobody tells."""
    tokens = [
        {
            request.index: request.tokens
            for visit in life
            for stretch in visit.stretches
            for request in stretch.run.requests
            if request.outcome == "ok"
        }
        for life in (first, second)
    ]
    both = tokens[0].keys() & tokens[1].keys()
    sums = [sum(own[index] for index in both) for own in tokens]
    return sums[1] / sums[0] if all(sums) else None


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(value=values["value"], low=values["low"], high=values["high"])
