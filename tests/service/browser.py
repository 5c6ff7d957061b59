"""A headless browser that keeps an account of what a page does."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def launch() -> Iterator[Any]:
    """Start a browser that is installed here; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is missing")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser is installed here; any of {', '.join(NAMES)} would do")
    # its sandbox cannot start for root, and the pages are our own
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, url: str, *, refusals: bool = False, **options: Any) -> Iterator[Any]:
    """A page in a context of its own; afterwards, that it asked no other host and that its console has no error.

    Args:
        browser: from ``launch``.
        url: of the service.
        refusals: whether requests of the page fail on purpose, which browsers write to the console.
        options: of the context, such as color_scheme.
    """
    context = browser.new_context(**options)
    page = context.new_page()
    hosts, complaints = set(), []
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    try:
        page.goto(url)
        yield page
        if refusals:
            complaints = [each for each in complaints if not each.startswith("Failed to load resource")]
        assert complaints == []
        assert hosts == {urlsplit(url).netloc}
        assert context.cookies() == []
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    finally:
        context.close()


def contrast(page: Any, selector: str) -> float:
    """WCAG's ratio between an element's text and the first opaque ground behind it."""
    ratio: float = page.locator(selector).first.evaluate(
        """(node) => {
          const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const luminance = (colour) => {
            const [r, g, b] = numbers(colour).slice(0, 3).map((value) => {
              const share = value / 255;
              return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          let behind = node;
          const ground = () => getComputedStyle(behind).backgroundColor;
          while (behind.parentElement && (numbers(ground())[3] ?? 1) < 1) behind = behind.parentElement;
          const [a, b] = [luminance(getComputedStyle(node).color), luminance(ground())].sort((x, y) => y - x);
          return (a + 0.05) / (b + 0.05);
        }"""
    )
    return ratio
