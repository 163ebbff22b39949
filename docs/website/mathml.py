"""Formulas as MathML, made when the site is built.

Current browsers draw it without scripts or fonts from elsewhere.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
# The converter spells upright words letter by letter, and leaves words and relations without the space that print has
# around them.
SPELLED = re.compile(r'<mrow>((?:<mi mathvariant="normal">\w</mi>){2,})</mrow>')
WORD = r"<mi>(?:log|exp|min|max|sinh|coth|Diag|diag|tr|KL)</mi>"
BEFORE_WORD = re.compile(rf"(</(?:mi|mn|msub|msup|msubsup|mfrac)>)(?={WORD})")
AFTER_WORD = re.compile(rf"({WORD})(?=<m(?!o))")
RELATION = re.compile(r"<m[io]>(&#x02AB0;|&#x027FA;)</m[io]>")
# Bars and slashes would get the space of an operator between two terms.
TIGHT = re.compile(r'<mo(?: stretchy="false")?>(&#x0007C;|&#x02016;|&#x0002F;)</mo>')
SPACE = '<mspace width="0.17em"/>'


def to_mathml(content: str) -> str:
    """A page of HTML with its formulas, marked up by `pymdownx.arithmatex`, as MathML."""
    content = BLOCK.sub(lambda match: f'<div class="formula">{formula(match[1], "block")}</div>', content)
    return INLINE.sub(lambda match: formula(match[1], "inline"), content)


def formula(latex: str, display: str) -> str:
    """One formula; `display` is "inline" or "block"."""
    found = convert(html.unescape(latex).strip(), display=display)
    found = SPELLED.sub(lambda match: f"<mi>{re.sub('<[^>]*>', '', match[1])}</mi>", found)
    found = BEFORE_WORD.sub(rf"\1{SPACE}", found)
    found = AFTER_WORD.sub(rf"\1{SPACE}", found)
    found = TIGHT.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', found)
    return RELATION.sub(r'<mo lspace="0.28em" rspace="0.28em">\1</mo>', found)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Convert the formulas of one page."""
    return to_mathml(content)
