"""The reference without the dashes that the renderer leaves where a docstring gives a type and no words."""

from __future__ import annotations

import re
from typing import Any

NO_WORDS = re.compile(r'\s*–\s*<div class="doc-md-description">\s*</div>')


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Tidy one page."""
    return NO_WORDS.sub("", content)
