"""From an empty worker process to one that answers, and back.

The model is loaded and warmed in the background, so that liveness and readiness are answered from the first moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from fastapi import FastAPI

from contract.errors import RobalError
from service.api import configure
from service.classifier import Classifier, load_model
from service.settings import DRAIN_SIGNAL, Settings

logger = logging.getLogger("robal.service")

ORPHAN_CHECK_S = 1.0


class Lifecycle:
    """Owns the classifier of an application.

    Args:
        api: the application whose state is filled.
        settings: what to serve and how.
    """

    def __init__(self, api: FastAPI, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self._parent = os.getppid()
        configure(api, settings)

    def start(self) -> None:
        """Begin to load; returns at once."""
        asyncio.get_running_loop().add_signal_handler(DRAIN_SIGNAL, self._drain)
        self._loading = asyncio.create_task(self._load())
        self._watching = asyncio.create_task(self._leave_with_parent())

    async def stop(self) -> None:
        """Answer what was accepted and release the model."""
        self._watching.cancel()
        await self._loading
        if (classifier := self._api.state.classifier) is not None:
            await classifier.close()

    async def _load(self) -> None:
        try:
            model = await asyncio.to_thread(load_model, self._settings)
            classifier = Classifier(model, settings=self._settings, metrics=self._api.state.metrics)
            await classifier.warm_up()
        except Exception as error:  # the border of the process: without a model it has nothing to do
            logger.critical("%s", error, exc_info=None if isinstance(error, RobalError) else error)
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._api.state.classifier = classifier

    def _drain(self) -> None:
        if (classifier := self._api.state.classifier) is not None:
            classifier.draining = True

    async def _leave_with_parent(self) -> None:
        """Stop when the supervising process was killed; nobody else would, and the port would stay taken."""
        while os.getppid() == self._parent:
            await asyncio.sleep(ORPHAN_CHECK_S)
        logger.warning("the supervising process has gone; stopping.")
        os.kill(os.getpid(), signal.SIGTERM)
