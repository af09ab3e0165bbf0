"""A page in headless Chromium, in the colours and at the width that a test asks for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Media = str
"""`light`, `dark` or `print`."""
HEIGHT = 1000

TEXT_BOXES = """
const boxes = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode()); ) {
  if (!node.data.trim()) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const svg = node.parentElement.closest("svg");
  const edge = svg && svg.getBoundingClientRect();
  for (const box of range.getClientRects()) {
    if (box.width < 0.5) continue;
    boxes.push({
      text: node.data.trim(), left: box.left, top: box.top, right: box.right, bottom: box.bottom,
      inside: !edge || (box.left >= edge.left - 1 && box.right <= edge.right + 1
                        && box.top >= edge.top - 1 && box.bottom <= edge.bottom + 1),
    });
  }
}
return boxes;
"""


@dataclass(frozen=True)
class Box:
    """Where a line of text is, in pixels."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    inside: bool
    """Of its drawing, if it is in one."""

    def meets(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 0.5 and down > 0.5


@dataclass(frozen=True)
class Browser:
    """Chromium, driven."""

    driver: Any

    def show(self, page: Path, media: Media, width: int) -> None:
        """Opens a page."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if media == "dark" else "light"}
        kind = "print" if media == "print" else "screen"
        emulated = {"media": kind, "features": [scheme]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
        self.driver.get(page.as_uri())

    def boxes(self) -> list[Box]:
        """Every line of text on the page."""
        return [Box(**box) for box in self.driver.execute_script(TEXT_BOXES)]

    def tell(self, script: str) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium and its driver; without them the test is skipped, but not where `.ci/run`, which
    installs them, has set RPEG_NEEDS_CHROMIUM.
    """
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "chromium and chromedriver are not here: `make chromium` installs them"
        assert "RPEG_NEEDS_CHROMIUM" not in os.environ, reason
        pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(made)
    finally:
        made.quit()


def meetings(boxes: list[Box]) -> list[tuple[str, str]]:
    """The texts of boxes that lie on each other."""
    return [
        (one.text, other.text)
        for k, one in enumerate(boxes)
        for other in boxes[k + 1 :]
        if one.meets(other)
    ]
