"""Figures as SVG inside a page: text in its font, lines in its colours, nothing that it would have to fetch."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optgeom.plotting import figures
from optgeom.plotting.figures import BLACK, BLUE, GREEN, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A variable of the page's style for each colour of the pictures, which stands where the page does not set it.
VARIABLES = {BLACK: "--ink", GREY: "--grey", BLUE: "--blue", ORANGE: "--orange", GREEN: "--green"}
POINTS = 10.0
TAG = re.compile(r"<[a-zA-Z/][^>]*>")
PIXELS_PER_INCH = 200  # of the parts that are drawn in pixels


def inline_svg(draw: Callable[[Axes], Any], size: tuple[float, float], name: str, title: str, description: str) -> str:
    """Draw on new axes and return `<svg>`.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it is given.
    size : (float, float)
        Inches; the page scales it to its width.
    name : str
        Prefix of all ids, which must be different for all pictures of a page.
    title, description : str
        For readers who cannot see the picture.
    """
    figures.require_matplotlib()
    import matplotlib

    ink = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), BLACK)
    style = {
        **figures.scaled_style(POINTS),
        **ink,
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # The page's fonts draw the text, so that it does not matter which characters matplotlib's own font has.
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from")
        figure = figures.new_figure(size)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        written = io.StringIO()
        # Tight: the layout leaves too little room beside axes whose shape is fixed.
        look: dict[str, Any] = {"transparent": True, "bbox_inches": "tight", "pad_inches": 0.04, "dpi": PIXELS_PER_INCH}
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None}, **look)
    return _adopted(written.getvalue(), name, title, description)


def _adopted(text: str, name: str, title: str, description: str) -> str:
    """The drawing without what only a file needs, its ids and colours those of the page."""
    body = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', body)
    assert box is not None
    body = body[body.index(">") + 1 :].strip()
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    # Within tags only: between them are names of classes, whatever they may look like.
    used = {pointer for tag in TAG.findall(body) for pointer in re.findall(r'(?:url\(#|href="#)([^")]+)', tag)}
    body = TAG.sub(lambda tag: _tag(tag[0], name, used), body)
    words = f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
    return f'<svg viewBox="{box[1]}" role="img" aria-label="{html.escape(title)}">{words}\n{body}'


def _tag(tag: str, name: str, used: set[str]) -> str:
    if "base64" in tag:  # a picture: nothing in it is a colour
        return tag.replace("xlink:href=", "href=")
    tag = tag.replace("xlink:href=", "href=")
    tag = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", tag)
    for colour, variable in VARIABLES.items():
        tag = re.sub(rf"{colour}\b", f"var({variable}, {colour.lower()})", tag, flags=re.IGNORECASE)
    return re.sub(r"font-family: [^;\"]*;? ?", "", tag)
