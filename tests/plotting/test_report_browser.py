"""The report in a real browser: phone and desktop, light and dark. Skipped where there is no Chromium."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.browser import CHROMIUM, Page, browser
from helpers.report_cases import CASES, case

from optgeom.plotting.validation_report import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (apt-get install chromium)")

PHONE, DESKTOP = 390, 1280
# Ratio of luminances of the text of every element to the ground behind it; WCAG 2 asks for 4.5, and 3 for large text.
CONTRAST = """
(() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const rgb = parts(getComputedStyle(at).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 120)];
  }
  return worst;
})()
"""
# What sticks out of the page, tables in their own scrolled boxes apart.
OUTSIDE = """
[...document.querySelectorAll("body *")]
  .filter((node) => !node.closest(".scroll table") && !node.closest(".unseen") && !node.closest("svg *"))
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
  .map((node) => node.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for name in CASES:
        write_report(case(name), folder / f"{name}.html")
    return folder


def pixels(png: bytes) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Width, height and every 97th pixel of an RGB or RGBA picture of 8 bits."""
    at, data, header = 8, b"", b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colours = struct.unpack(">IIBB", header[:10])
    size = {2: 3, 6: 4}[colours]
    assert depth == 8
    raw = zlib.decompress(data)
    previous, line = bytearray(width * size), bytearray()
    found = []
    for row in range(height):
        kind, line = (
            raw[row * (width * size + 1)],
            bytearray(raw[row * (width * size + 1) + 1 : (row + 1) * (width * size + 1)]),
        )
        for i in range(width * size):
            left = line[i - size] if i >= size else 0
            corner = previous[i - size] if i >= size else 0
            up = previous[i]
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + up) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[
                    2
                ]
                line[i] = (line[i] + nearest) & 255
        previous = line
        found += [(line[i * size], line[i * size + 1], line[i * size + 2]) for i in range(row % 97, width, 97)]
    return width, height, found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", sorted(CASES))
def test_page_fits_is_quiet_and_can_be_read(page, reports, name, width, scheme):
    page.open(reports / f"{name}.html", width, scheme)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    assert page.requests == [] and page.complaints == []
    assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    ratio, where = page.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    # The verdict is what one sees first, without scrolling.
    assert page.evaluate("document.querySelector('h1').getBoundingClientRect().bottom < innerHeight / 2")
    tallest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('svg')].map((one) => one.getBoundingClientRect().height))"
    )
    assert 200 < tallest < 620
    assert page.evaluate(
        "[...document.querySelectorAll('svg text')].every((one) => parseFloat(getComputedStyle(one).fontSize) >= 8)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_painted_in_its_scheme(page, reports, scheme):
    page.open(reports / "differs.html", PHONE, scheme)
    page.call("Emulation.setDeviceMetricsOverride", width=PHONE, height=700, deviceScaleFactor=1, mobile=True)
    _, _, seen = pixels(page.screenshot(whole=False))
    brightness = sorted(sum(pixel) / 3 for pixel in seen)
    ground = brightness[len(brightness) // 2]
    assert ground > 225 if scheme == "light" else ground < 50
    assert brightness[-1] - brightness[0] > 120, "nothing is written on it"


def test_pictures_take_the_colours_of_the_scheme(page, reports):
    seen = {}
    for scheme in ("light", "dark"):
        page.open(reports / "differs.html", DESKTOP, scheme)
        seen[scheme] = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
        assert seen[scheme] == page.evaluate("getComputedStyle(document.body).color")
    assert seen["light"] != seen["dark"]


def test_tables_scroll_by_themselves_on_a_phone(page, reports):
    page.open(reports / "long-tailed.html", PHONE)
    assert page.evaluate("[...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)")
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every((box) => box.clientWidth <= innerWidth && box.tabIndex === 0)"
    )


def test_print_shows_every_row_on_white(page, reports):
    page.open(reports / "long-tailed.html", 794, "dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every((box) => box.scrollHeight <= box.clientHeight + 1)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
