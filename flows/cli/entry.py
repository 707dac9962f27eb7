"""The entry point: reads the arguments, runs one command, turns refusals into exit codes."""

from __future__ import annotations

import os
import sys

import cyclopts
from rich.console import Console

from flows.cli.app import app
from flows.errors import StudyError, UsageError

USAGE_ERROR = 2
"""Exit code for input that is refused before any work starts."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Refused input exits with 2 and one line on stderr."""
    complaints = Console(stderr=True, soft_wrap=True)
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        code = command(*bound.args, **bound.kwargs)
    except cyclopts.CycloptsError as error:
        complaints.print(f"stillroom: {' '.join(str(error).split())}", style="red", highlight=False, markup=False)
        sys.exit(USAGE_ERROR)
    except UsageError as error:
        complaints.print(f"stillroom: {error}", style="red", highlight=False, markup=False)
        sys.exit(USAGE_ERROR)
    except StudyError as error:
        complaints.print(f"stillroom: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
