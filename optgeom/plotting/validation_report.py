"""The report of a validation: one page of HTML that holds everything it shows, verdict first, every number last."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterable
from typing import Any

from optgeom.embeddings.result import Validation
from optgeom.errors import MissingDependencyError
from optgeom.formatting import finite, short, visible
from optgeom.inputs import files
from optgeom.plotting import figures
from optgeom.plotting import validation as pictures
from optgeom.plotting.inline_svg import inline_svg
from optgeom.wording import describe_certificate, describe_regime, simplex_angle_deg

SHOWN_CLASSES = 100
NAME_WIDTH = 60  # characters of a class name in a table
MOST_CLASSES = 2000  # beyond, the table would be most of the page; the JSON output has all of them
SHOWN_PAIRS = 25
LISTED = 50  # names in a list
MAP_SIZE, CHART_SIZE = (5.0, 4.7), (5.0, 3.9)  # inches; on a phone one point of the text is about one pixel

# Columns of the table of classes that are left out where no class has a value.
_COLUMNS = (
    {"key": "rho", "head": "tightness", "title": "length of the class mean; 1 where all its images are one point"},
    {"key": "cdnv", "head": "CDNV", "title": "largest class-distance normalised variance; 0 is best"},
    {"key": "nearest_mean", "head": "accuracy", "title": "share of its images whose nearest class mean is its own"},
    {"key": "cac", "head": "CAC", "title": "share of its own class among the nearest 5 % of the images"},
    {
        "key": "saa",
        "head": "SAA",
        "title": "share of its images whose nearest neighbour is another view of the same image",
    },
)
_TERMS = {
    "direction": "class means point elsewhere than at the optimum",
    "shrink": "class means are shorter than 1: classes are not tight",
    "within": "images scatter around their class mean",
}


def write_report(validation: Validation, path: str | os.PathLike[str]) -> None:
    """Write the report as one HTML file, in one step; it needs no other file and no network.

    Parameters
    ----------
    validation : Validation
    path : str or path-like
        The same validation gives the same bytes.

    Raises
    ------
    MissingDependencyError
        jinja2 or matplotlib is not installed.
    InvalidInputError
        A place that cannot be written.
    """
    # Half a character (a lone surrogate, from a file name) cannot be written as UTF-8.
    files.write_bytes(path, render_report(validation).encode("utf-8", "replace"))


def render_report(validation: Validation) -> str:
    """The page as text; see `write_report`."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError("the report needs jinja2: pip install 'optgeom[plot]'") from error
    figures.require_matplotlib()
    # A name that is missing is a mistake of the template, not an empty place on the page.
    rules: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.PackageLoader("optgeom.plotting"), autoescape=True, **rules)
    environment.filters |= {"class_name": name_of, "about": about, "percent": _percent}
    drawn = [figure | {"svg": _markup(visible(figure["svg"]))} for figure in _pictures(validation)]
    return environment.get_template("validation.html.j2").render(
        v=validation,
        headline=visible(validation.judgement.headline),
        sentence=text_with_names(validation.sentence, validation),
        advice=validation.judgement,
        compared=_compared(validation),
        confidence=f"{100 * (1 - validation.intervals.alpha):g}",
        r2_reason=reason_without_r2(validation),
        risk=_risk(validation),
        figures=drawn,
        columns=[
            column
            for column in _COLUMNS
            if any(finite(getattr(row, column["key"])) is not None for row in validation.classes)
        ],
        shown=SHOWN_CLASSES,
        most=MOST_CLASSES,
        pairs=[(pair, validation.pair_evidence(pair)) for pair in validation.worst_pairs(SHOWN_PAIRS)],
        metrics=list(_metrics(validation)),
        facts=_facts(validation),
        lists=_lists(validation),
        versions=_versions(),
    )


def _markup(svg: str) -> Any:
    """Drawn here, with names escaped: not to be escaped again."""
    import markupsafe

    return markupsafe.Markup(svg)


_ALLOWED = (
    "Broad light bars: the angles allowed at the same excess risk (the direction term above), each pair "
    "by itself. Where they are long the loss hardly asks for the angle."
)


def _pictures(validation: Validation) -> list[dict[str, str]]:
    """Pictures with their captions, in the order of the page; without a tested pair only that of the optimum."""
    number, pairs = validation.num_classes, validation.intervals.num_pairs
    simplex = f"{simplex_angle_deg(max(number, 2)):.1f}°"
    scale = (
        f"Red: closer together than in the balanced simplex ({simplex}, the line on the scale); blue: further apart; "
        "grey: no angle."
    )
    many = f"{pairs} pair{'' if pairs == 1 else 's'} of classes"
    drawn: list[tuple[str, Any, tuple[float, float], str, str]] = [
        (
            "learned",
            _map("learned"),
            MAP_SIZE,
            f"Heat map of the learned angles of {number} classes",
            f"{scale} Scale of both maps.",
        ),
        (
            "optimal",
            _map("optimal"),
            MAP_SIZE,
            f"Heat map of the optimal angles of {number} classes",
            f"{_regime(validation)} {scale}",
        ),
        (
            "scatter",
            pictures.plot_angle_scatter,
            CHART_SIZE,
            f"Learned against optimal angle of {many}",
            "A pair on the dashed line has its optimal angle. Bars are intervals that hold for all pairs at once; "
            "orange pairs are off by more than the tolerance, noise set aside. "
            + ("" if validation.ranges is None else _ALLOWED),
        ),
        (
            "errors",
            pictures.plot_angle_errors,
            CHART_SIZE,
            f"Learned minus optimal angle of {many} by class size",
            "The same pairs by the images of their smaller class: noise makes the bars of small classes long, a real "
            "deviation moves them away from zero.",
        ),
        (
            "off",
            _map("off"),
            MAP_SIZE,
            f"Heat map of what noise does not explain in {many}",
            "How far the optimal angle lies outside the interval of the learned one. Red: closer together than "
            "optimal; blue: further apart; no colour: noise explains it.",
        ),
        (
            "spectrum",
            pictures.plot_spectra,
            CHART_SIZE,
            "Eigenvalues of the learned and of the optimal Gram matrix",
            "How many directions the class means use, and how much of each. Noise alone spreads the learned "
            "eigenvalues, also below zero.",
        ),
    ]
    shown = [one for one in drawn if pairs or one[0] == "optimal"]
    return [
        {"svg": inline_svg(_onto(draw, validation), size, name, title, caption), "caption": caption}
        for name, draw, size, title, caption in shown
    ]


def _onto(draw: Callable[..., Any], validation: Validation) -> Callable[..., Any]:
    return lambda axes: draw(validation, axes=axes)


def _map(which: str) -> Callable[..., Any]:
    return lambda validation, *, axes: pictures.plot_angle_map(validation, which, axes=axes)


def _regime(validation: Validation) -> str:
    text = describe_regime(validation.geometry)
    return f"{text[0].upper()}{text[1:]}."


def _compared(validation: Validation) -> list[tuple[str, str]]:
    """What was compared with what, in words."""
    geometry = validation.geometry
    classes = f"{validation.num_classes}" + (
        f" of the {geometry.num_classes} of the optimum" if validation.missing else ""
    )
    smallest, largest = int(validation.directions.counts.min()), int(validation.directions.counts.max())
    images = (
        f"{validation.num_images} in {validation.dim} dimensions, {smallest}"
        + (f" to {largest}" if largest > smallest else "")
        + " per class"
    )
    loss = geometry.loss.words()
    return [
        (
            "Embeddings",
            "arrays in memory" if validation.embeddings_from == "`embeddings`" else validation.embeddings_from,
        ),
        ("Images", images),
        ("Classes", classes),
        ("Optimum from", validation.optimum_from),
        ("Loss", loss),
        ("Tolerance", f"{validation.tolerance_deg:g} degrees"),
    ]


def _risk(validation: Validation) -> dict[str, Any]:
    risk = validation.excess_risk
    values = {name: getattr(risk, name) for name in _TERMS}
    terms = [
        {"name": name, "value": value, "text": _TERMS[name]} for name, value in values.items() if value is not None
    ]
    whole = sum(max(term["value"], 0.0) for term in terms)
    for term in terms:
        term["share"] = max(term["value"], 0.0) / whole if whole > 0 else 0.0
    if risk.within_error:
        terms[-1]["text"] += f" (± {_percent(risk.within_error)})"
    return {
        "total": risk.total,
        "terms": terms,
        "reason": text_with_names(risk.reason or ("" if terms else "it was not computed"), validation),
    }


def _metrics(validation: Validation) -> Iterable[dict[str, Any]]:
    for name, metric in validation.metrics.items():
        yield {
            "name": name,
            "value": metric.value,
            "error": metric.standard_error,
            "rows": metric.rows,
            "text": metric.words,
            "reason": metric.reason and shortened(metric.reason, validation),
        }


def _facts(validation: Validation) -> list[tuple[str, str]]:
    """Numbers beside the metrics, with their names."""
    geometry, norms = validation.geometry, validation.norms
    unit, intervals = validation.excess_risk.unit, validation.intervals
    source = {
        "projected": "exact, from a second pass",
        "full": "from one covariance per class",
        "pooled": "from one covariance for all",
    }
    facts = [
        ("Optimum", describe_regime(geometry)),
        ("Certificate", describe_certificate(geometry)),
        ("Lowest risk", f"{geometry.risk:.10g}"),
        ("Rank of the optimum", f"{geometry.rank} of at most {geometry.num_classes - 1}"),
        ("Unit of the excess risk", "n/a" if unit is None else about(unit, 6)),
        ("Pairs tested", str(validation.intervals.num_pairs)),
        (
            "Confidence",
            f"{100 * (1 - intervals.alpha):g} % for all pairs at once; variances {source[intervals.source]}",
        ),
        ("Rows read", str(validation.num_rows)),
        ("Images compared", str(validation.num_images)),
        ("Rows ignored by label", str(sum(validation.ignored.values()))),
        ("Norms of the rows", f"{about(norms.smallest)} to {about(norms.largest)}, mean {about(norms.mean)}"),
        ("Matching of classes", "by name" if validation.matching == "names" else "Hungarian: names were not used"),
    ]
    if geometry.required_rank is not None:
        facts.insert(4, ("Dimensions that the optimum needs", str(geometry.required_rank)))
    return facts


def _lists(validation: Validation) -> list[dict[str, Any]]:
    """What was left out and done, where there is something."""
    judgement, names = validation.judgement, validation.names
    predicted = [f"{name_of(names[pair.first])} and {name_of(names[pair.second])}" for pair in judgement.as_predicted]
    groups: list[tuple[str, list[str]]] = [
        ("Notes", [text_with_names(note, validation) for note in validation.notes]),
        ("Classes with too few images to tell", [name_of(name) for name in judgement.too_small]),
        ("Classes without a common direction", [name_of(name) for name in judgement.without_direction]),
        ("Pairs that coincide, as the optimum predicts", predicted),
        ("Classes of the optimum without embeddings, left out", [name_of(name) for name in validation.missing]),
        (
            "Classes of the embeddings that the optimum does not have, left out",
            [_counted(*entry) for entry in validation.extra.items()],
        ),
        ("Rows ignored by their label", [_counted(*entry) for entry in validation.ignored.items()]),
        (
            "Matched classes: embeddings to optimum",
            [f"{name_of(a)} to {name_of(b)}" for a, b in validation.matched.items()],
        ),
    ]
    return [
        {"title": title, "entries": entries[:LISTED], "more": max(len(entries) - LISTED, 0)}
        for title, entries in groups
        if entries
    ]


def _counted(name: str, number: int) -> str:
    return f"{name_of(name)}: {number}"


def _versions() -> str:
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("optgeom", "numpy", "scipy", "matplotlib")]
    return ", ".join([*packages, f"Python {platform.python_version()}"])


def _percent(value: float) -> str:
    """A share in percent: two digits where it is small."""
    percent = 100 * value
    if percent == 0 or abs(percent) < 1e-12:
        return "0 %"
    return f"{percent:.1f} %" if abs(percent) >= 1 else f"{percent:.2g} %"


def reason_without_r2(validation: Validation) -> str:
    """Why class r2 is n/a, or how far to trust it."""
    if validation.intervals.num_pairs == 0:
        return "no pair of classes could be tested"
    if validation.class_r2 is None:
        return "at the optimum all pairs have the same angle, so there are no differences to reproduce"
    if validation.deviations.class_r2_weak:
        return "the optimal angles are nearly equal: this mostly measures noise"
    return "share of the differences between the optimal cosines that the embedding has; 1 is best"


def name_of(text: str, width: int = NAME_WIDTH) -> str:
    """A class name in one line, shortened in the middle."""
    return short(visible(text), width)


def text_with_names(text: str, validation: Validation) -> str:
    """A sentence that names classes, with names that would fill the page shortened."""
    text = shortened(text, validation)
    return text[:1].upper() + text[1:]


def shortened(text: str, validation: Validation) -> str:
    """The same for a part of a sentence."""
    for name in (*validation.names, *validation.missing, *validation.extra):
        if len(name) > NAME_WIDTH:  # before control characters are replaced, or it would not be validation
            text = text.replace(name, name_of(name))
    return visible(text)


def about(value: float, digits: int = 4) -> str:
    """A number for a table."""
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+")
