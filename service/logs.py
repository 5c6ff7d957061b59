"""The service's log on stderr: a readable line per event, or a JSON object a line for machines.

No text of a request is ever logged.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]

FIELDS = "robal_fields"
"""Attribute of a log record that holds its values for machines."""


class JsonLines(logging.Formatter):
    """Each record as one line: time, level, message, the record's fields, and a traceback if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter``."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(style: LogFormat) -> None:
    """Send the service's log to stderr, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    readable = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else readable)
    root = logging.getLogger("robal")
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
