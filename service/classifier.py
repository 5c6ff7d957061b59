"""Texts to labels: encode, compute, score. No HTTP and no BentoML.

Encoding and the engine run in threads of their own, so that the event loop stays free to accept, refuse and answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from contract.encoding import EncodedText, TextEncoder
from contract.errors import EngineFailure, InvalidRequest, TextTooLong, Unavailable, listing
from contract.manifest import Manifest, load_manifest, load_text_encoder
from contract.scores import Array, ranked
from service.attribution import occlude
from service.engine import Engine, Logits, OnnxEngine, attention_cells, check_probe
from service.metrics import Metrics
from service.runner import EngineRunner
from service.scheduler import Computed, Limits, Scheduler
from service.schemas import (
    BundleInfo,
    ClassifyRequest,
    ClassifyResponse,
    ExplainRequest,
    ExplainResponse,
    FailedResult,
    Info,
    ItemError,
    LabelScore,
    LimitsInfo,
    ModelName,
    Result,
    Usage,
)
from service.settings import Settings, available_cpus

logger = logging.getLogger("robal.service")

T = TypeVar("T")

TOKENISER_THREADS = 2
"""Enough that one huge text does not hold up the others; the library itself spreads a list over the processors."""
WEIGHTS = {"low": 0.25, "normal": 1.0, "high": 4.0}
"""Share of the engine of a request that waits beside others."""
ITEM_FAILED = "the service could not compute this text; the log has the reason."


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A bundle, loaded."""

    manifest: Manifest
    precision: str
    text_encoder: TextEncoder
    engine: Engine
    make_engine: Callable[[], Engine]
    """Makes another one, should this one hang."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Where the time of one request went, in seconds."""

    tokenise_s: float
    queue_s: float
    engine_s: float


def load_model(settings: Settings) -> Model:
    """Open the bundle that the settings name."""
    manifest = load_manifest(settings.bundle, verify=settings.verify)
    settings.check(manifest)
    threads, instances = settings.layout(available_cpus())
    precision = manifest.resolve(settings.precision)

    def make_engine() -> Engine:
        engine = OnnxEngine(
            settings.bundle,
            manifest,
            precision=precision,
            threads=threads,
            instances=instances,
            provider=settings.provider or "cpu",
        )
        check_probe(engine, manifest.graph(precision), settings.bundle)
        return engine

    return Model(
        manifest=manifest,
        precision=precision,
        text_encoder=load_text_encoder(settings.bundle, manifest),
        engine=make_engine(),
        make_engine=make_engine,
    )


def _usage(encoded: Sequence[EncodedText]) -> Usage:
    return Usage(texts=len(encoded), tokens=sum(len(item.input_ids) for item in encoded))


class Classifier:
    """A loaded model that answers concurrent requests.

    Args:
        model: the loaded bundle; closed together with the classifier.
        settings: limits.
        metrics: counts what happens.
    """

    def __init__(self, model: Model, *, settings: Settings, metrics: Metrics) -> None:
        self.model = model
        self._settings = settings
        self._metrics = metrics
        self._tokenisers = ThreadPoolExecutor(TOKENISER_THREADS, "tokenise")
        self._runner = EngineRunner(model.engine, model.make_engine, timeout_s=settings.engine_timeout_s)
        self.draining = False
        """Whether to say that it is not ready, though it still answers."""
        self._suspect = False
        self._probing = asyncio.Lock()
        self._closed = False
        self._scheduler = Scheduler(
            self._runner.run,
            limits=Limits(
                max_batch_tokens=settings.max_batch_tokens,
                max_batch_items=settings.max_batch_items,
                max_queue_tokens=settings.max_queue_tokens,
            ),
            observer=self,
            instances=model.engine.instances,
        )
        manifest = model.manifest
        self._calibration = manifest.calibration
        self._name = ModelName(name=manifest.name, family=manifest.family, precision=model.precision)
        metrics.model.labels(manifest.name, manifest.family, model.precision).set(1)

    async def warm_up(self) -> None:
        """Compute the shortest and the longest text once, so that no request pays for first touches."""
        encoder = self.model.text_encoder
        for text in ("", "a " * encoder.max_length):
            await self._runner.run([encoder.encode(text)])

    async def classify(self, request: ClassifyRequest, request_id: str = "") -> tuple[ClassifyResponse, Timings]:
        """Answer one request.

        Args:
            request: the texts and how to answer.
            request_id: for the log, should a text of a list fail.

        Raises:
            TextTooLong: a text exceeds the limit and truncation is off.
            TooLarge, Overloaded, DeadlineExceeded, Unavailable: see ``Scheduler.submit``.
            EngineFailure: a lone text could not be computed; a text of a list has an error in its place instead.
        """
        self._check_open()
        texts = request.texts()
        if not texts:
            answer = ClassifyResponse(model=self._name, results=[], usage=Usage(texts=0, tokens=0))
            return answer, Timings(tokenise_s=0, queue_s=0, engine_s=0)
        encode = partial(self.model.text_encoder.encode_batch, texts, request.truncation)
        encoded, tokenise_s = await self._tokenise(encode, request)
        computed, timings = await self._submit(encoded, request, tokenise_s)
        results = self._results(computed, encoded, request, request_id)
        return ClassifyResponse(model=self._name, results=results, usage=_usage(encoded)), timings

    async def explain(self, request: ExplainRequest) -> tuple[ExplainResponse, Timings]:
        """What each part of a text does for a label; the text and those without a part are computed as one request.

        Raises:
            InvalidRequest: the model has no such label.
            TextTooLong, TooLarge, Overloaded, DeadlineExceeded, Unavailable: as ``classify``.
            EngineFailure: one of the texts could not be computed.
        """
        self._check_open()
        labels = self.model.manifest.labels
        if request.label is not None and request.label not in labels:
            raise InvalidRequest(f"the model has no such label; it has {listing(labels)}.", field="label")
        prepare = partial(
            occlude,
            self.model.text_encoder,
            request.text(),
            request.truncation,
            max_parts=self._settings.max_explain_parts,
            max_tokens=self._settings.max_queue_tokens,
        )
        occlusion, tokenise_s = await self._tokenise(prepare, request)
        computed, timings = await self._submit(occlusion.encoded, request, tokenise_s)
        logits = computed.logits
        scores = self._calibration.scores(logits, self.model.manifest.problem_type)
        column = int(scores[0].argmax()) if request.label is None else labels.index(request.label)
        answer = ExplainResponse(
            model=self._name,
            label=labels[column],
            score=scores[0, column],
            logit=logits[0, column],
            truncated=occlusion.truncated,
            tokens=len(occlusion.encoded[0].input_ids),
            words=occlusion.words,
            words_per_part=occlusion.words_per_part,
            parts=occlusion.effects(scores[:, column], logits[:, column]),
            usage=_usage(occlusion.encoded),
        )
        return answer, timings

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the service is stopping; send the request to another instance.")

    async def _tokenise(self, work: Callable[[], T], request: ClassifyRequest | ExplainRequest) -> tuple[T, float]:
        """Do work in a tokeniser's thread; its result and seconds."""
        started = time.perf_counter()
        try:
            done = await asyncio.get_running_loop().run_in_executor(self._tokenisers, work)
        except TextTooLong as error:
            if not isinstance(request.inputs, list):
                error.field = "inputs"
            raise
        tokenise_s = time.perf_counter() - started
        self._metrics.stage_seconds.labels("tokenise").observe(tokenise_s)
        return done, tokenise_s

    async def _submit(
        self, encoded: Sequence[EncodedText], request: ClassifyRequest | ExplainRequest, tokenise_s: float
    ) -> tuple[Computed, Timings]:
        """Have the texts of a request computed, in what is left of its time."""
        timeout_s = None if request.timeout_ms is None else request.timeout_ms / 1e3 - tokenise_s
        computed = await self._scheduler.submit(encoded, timeout_s=timeout_s, weight=WEIGHTS[request.priority])
        self._metrics.stage_seconds.labels("queue").observe(computed.queue_s)
        self._metrics.texts.inc(len(encoded))
        self._metrics.tokens.inc(_usage(encoded).tokens)
        return computed, Timings(tokenise_s=tokenise_s, queue_s=computed.queue_s, engine_s=computed.engine_s)

    async def check_ready(self) -> None:
        """Return if requests can be answered; after an engine failure, try whether it computes again.

        Raises:
            Unavailable: closed, or the engine fails on a text that it could compute at the start.
        """
        async with self._probing:
            if self._closed or self.draining:
                raise Unavailable("the service is stopping.")
            self._runner.check()
            if not self._suspect:
                return
            try:
                logits = await self._runner.run([self.model.text_encoder.encode("")])
            except Exception as error:  # whatever an engine raises, it means the same here
                logger.exception("the engine does not compute")
                raise Unavailable("the model does not compute; the log has the reason.") from error
            if not np.isfinite(logits).all():
                raise Unavailable("the model computes values that are not finite numbers.")
            self._suspect = False

    async def close(self) -> None:
        """Answer what was accepted, then release threads and memory."""
        self._closed = True
        await self._scheduler.close()
        self._tokenisers.shutdown()
        self._runner.close()

    def info(self) -> Info:
        """What ``GET /info`` says."""
        manifest, settings = self.model.manifest, self._settings
        graph = manifest.graph(self.model.precision)
        return Info(
            name=manifest.name,
            family=manifest.family,
            problem_type=manifest.problem_type,
            labels=list(manifest.labels),
            max_length=manifest.max_length,
            precision=self.model.precision,
            provider=self._settings.provider or "cpu",
            temperature=self._calibration.temperature,
            parameters=manifest.parameters,
            unique_parameters=manifest.unique_parameters,
            bundle=BundleInfo(format_version=manifest.format_version, size_bytes=graph.size_bytes),
            limits=LimitsInfo.model_validate(settings.model_dump(include=set(LimitsInfo.model_fields))),
            robal_version=manifest.robal_version,
        )

    def queue_changed(self, tokens: int) -> None:
        """See ``scheduler.Observer``."""
        self._metrics.queue_changed(tokens)

    def batch_done(self, lengths: Sequence[int], seconds: float) -> None:
        """See ``scheduler.Observer``."""
        self._suspect = False
        self._metrics.batch_done(lengths, attention_cells(lengths), seconds)

    def batch_failed(self) -> None:
        """See ``scheduler.Observer``."""
        self._suspect = True
        self._metrics.batch_failed()

    def deadline_missed(self, texts: int) -> None:
        """See ``scheduler.Observer``."""
        self._metrics.deadline_misses.inc(texts)

    def _results(
        self, computed: Computed, encoded: Sequence[EncodedText], request: ClassifyRequest, request_id: str
    ) -> list[Result | FailedResult]:
        if not isinstance(request.inputs, list):
            computed.logits  # noqa: B018  # raises its failure: there is no neighbour to answer
        results: list[Result | FailedResult] = []
        for number, (row, item) in enumerate(zip(computed.rows, encoded, strict=True)):
            if isinstance(row, EngineFailure):
                logger.error("request %s, inputs[%d]: %s", request_id, number, row, exc_info=row.__cause__)
                results.append(FailedResult(error=ItemError(type="internal_error", message=ITEM_FAILED)))
            else:
                results.append(self._result(row, item, request))
        return results

    def _given(self, probabilities: Array, threshold: float | None) -> list[str] | None:
        """Labels that a text has, of a model of several."""
        manifest = self.model.manifest
        if manifest.problem_type != "multi_label_classification":
            return None
        limits = self._calibration.limits(manifest.labels) if threshold is None else threshold
        reached = probabilities >= limits
        return [label for label, is_given in zip(manifest.labels, reached, strict=True) if is_given]

    def _result(self, logits: Logits, item: EncodedText, request: ClassifyRequest) -> Result:
        manifest = self.model.manifest
        calibrated = self._calibration.scores(logits[None], manifest.problem_type)[0]
        scores = logits if request.raw_scores else calibrated
        best = [LabelScore(label=label, score=score) for label, score in ranked(scores, manifest.labels)]
        return Result(
            label=best[0].label,
            score=best[0].score,
            scores=best[: request.top_k],
            given=self._given(calibrated, request.threshold),
            truncated=item.truncated,
            tokens=len(item.input_ids),
        )
