"""A lock is held while its holder lives, whatever ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.results.locks import hold, is_held

HOLDER = """
import sys, time
from pathlib import Path
from evaluation.results.locks import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


class GivenUpError(Exception):
    pass


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        assert is_held(lock)
        asked = []

        def give_up() -> None:
            asked.append(1)
            if len(asked) == 2:
                raise GivenUpError

        with pytest.raises(GivenUpError), hold(lock, give_up):
            raise AssertionError("two hold the lock")
        assert is_held(lock)
        holder.kill()
    assert not is_held(lock)
    with hold(lock, lambda: pytest.fail("nobody holds it")):
        assert is_held(lock)
    assert not is_held(lock)


def test_asking_makes_no_file(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none.lock") and not [*tmp_path.iterdir()]
