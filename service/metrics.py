"""What the service counts, for Prometheus.

Labels have few values on purpose: an endpoint is one of the API's routes or ``other``, so that a scanner trying paths
makes no new series.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

MEDIA_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one service process, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, that nobody reads
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # process_resident_memory_bytes and the like
        self.requests = Counter(
            "robal_requests_total", "Answers by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "robal_request_seconds",
            "From the first byte of a request to its answer.",
            ["endpoint"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge("robal_requests_in_progress", "Requests that are being answered.", registry=registry)
        self.texts = Counter("robal_texts_total", "Texts classified.", registry=registry)
        self.tokens = Counter("robal_tokens_total", "Tokens of classified texts.", registry=registry)
        self.queue_tokens = Gauge("robal_queue_tokens", "Tokens waiting for the engine.", registry=registry)
        self.batch_items = Histogram(
            "robal_batch_items", "Texts of one engine call.", buckets=_ITEMS, registry=registry
        )
        self.positions = Counter(
            "robal_engine_positions_total",
            "Positions that attention worked on; kind=padding is waste. All other layers compute real tokens only.",
            ["kind"],
            registry=registry,
        )
        self.engine_failures = Counter(
            "robal_engine_failures_total",
            "Engine calls that raised, and texts with logits that are not finite.",
            registry=registry,
        )
        self.deadline_misses = Counter(
            "robal_deadline_misses_total", "Texts refused or dropped because of their deadline.", registry=registry
        )
        self.stage_seconds = Histogram(
            "robal_stage_seconds",
            "Time by stage: tokenise and queue of a request, engine of a batch.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.model = Gauge(
            "robal_model", "The model being served; always 1.", ["name", "family", "precision"], registry=registry
        )
        for kind in ("real", "padding"):  # every series exists from the start, so that rates have a first value
            self.positions.labels(kind)
        for stage in ("tokenise", "queue", "engine"):
            self.stage_seconds.labels(stage)

    def queue_changed(self, tokens: int) -> None:
        """See ``scheduler.Observer``."""
        self.queue_tokens.set(tokens)

    def batch_done(self, lengths: Sequence[int], positions: int, seconds: float) -> None:
        """Count an engine call for texts of these lengths, in that many positions of attention."""
        tokens = sum(lengths)
        self.batch_items.observe(len(lengths))
        self.positions.labels("real").inc(tokens)
        self.positions.labels("padding").inc(positions - tokens)
        self.stage_seconds.labels("engine").observe(seconds)

    def batch_failed(self) -> None:
        """See ``scheduler.Observer``."""
        self.engine_failures.inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)
