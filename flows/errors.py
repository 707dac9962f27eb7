"""Refusals: input that is wrong in a way its author can mend, told in one line before any work starts."""

from __future__ import annotations


class UsageError(ValueError):
    """Wrong input; the message is one line that names the place and the fix."""
