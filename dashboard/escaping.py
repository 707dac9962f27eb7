"""Texts that are not ours inside Markdown: labels, error messages, names of models."""

from __future__ import annotations

import re

# What Markdown and Streamlit's additions ($formulas$, :icons:, :colour[...]) give a meaning to.
_SPECIAL = re.compile(r"([\\`*_\[\]{}()#+\-.!$~:<>|^=&])")


def plain(text: object) -> str:
    """``text`` so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))
