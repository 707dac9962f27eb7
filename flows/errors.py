"""What the command line tells in one line instead of a traceback."""

from __future__ import annotations


class UsageError(ValueError):
    """Wrong input, refused before any work starts: one line that names the place and the fix. Exit code 2."""


class StudyError(RuntimeError):
    """The machine did not give what the study needs; what is done is kept. One line with the fix. Exit code 1."""
