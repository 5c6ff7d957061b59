"""API keys: who may ask. The service knows only their sha256, so that its files give no key away."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import Headers

from contract.errors import Unauthorized, UsageError

OPEN_PATHS = frozenset({"/livez", "/readyz", "/"})
"""For probes, which have no key, and for the page that asks for one."""
OPEN_FOLDER = "/page/"
"""The page's files."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Keys:
    """The accepted keys.

    Args:
        digests: sha256 of each.
    """

    def __init__(self, digests: Sequence[bytes]) -> None:
        self._digests = tuple(digests)

    @classmethod
    def read(cls, path: Path) -> Keys:
        """From a file with one sha256 in hexadecimal a line; what follows it on the line, and lines with #, are notes.

        Raises:
            UsageError: the file cannot be read, has another line, or no key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--api-keys {path} cannot be read ({error}).") from None
        digests = []
        for number, line in enumerate(lines, 1):
            word = (line.split() or [""])[0]
            if not word or word.startswith("#"):
                continue
            if not _DIGEST.fullmatch(word):
                raise UsageError(
                    f"{path}, line {number}: a sha256 of 64 hexadecimal digits was expected; "
                    "printf %s KEY | sha256sum makes one."
                )
            digests.append(bytes.fromhex(word))
        if not digests:
            raise UsageError(f"{path} has no key, so that nobody could ask; add a line, or leave --api-keys out.")
        return cls(digests)

    def check(self, path: str, headers: Headers) -> None:
        """Raise Unauthorized unless the request has a key or needs none. Takes as long for every key."""
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = headers.get("x-api-key", "")
        digest = hashlib.sha256(given.strip().encode()).digest()
        if not any([hmac.compare_digest(digest, known) for known in self._digests]):  # a list: never stops early
            raise Unauthorized(
                "a valid key is needed: send the header `authorization: Bearer KEY`, or `x-api-key: KEY`."
            )
