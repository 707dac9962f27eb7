"""Paths that name several fields: what they match, what they leave out, what is refused."""

from __future__ import annotations

import pytest

from flows.paths import SHORTHANDS, matching_paths, single_paths
from training.method import OverrideError, override_all
from training.methods import METHODS

OPSD = METHODS["opsd"]
TERM = "phases.student.terms.distill"


@pytest.mark.parametrize("key", sorted(METHODS))
def test_the_learning_rate_of_every_phase_has_a_name(key: str) -> None:
    method = METHODS[key]
    expected = [f"phases.{phase}.optimiser.learning_rate" for phase in method.phases]
    assert matching_paths(method, "learning_rate") == expected
    changed = override_all(method, single_paths(method, {"learning_rate": 0.125}))
    assert {phase.optimiser.learning_rate for phase in changed.phases.values()} == {0.125}


def test_a_star_leaves_out_what_has_no_such_field() -> None:
    views = matching_paths(OPSD, "views.*.weights.kind")
    assert views == [f"views.{name}.weights.kind" for name in OPSD.views]
    assert matching_paths(OPSD, "*.group_size") == ["batch.group_size"]
    assert matching_paths(OPSD, "phases.*.terms.*.coefficient") == [f"{TERM}.coefficient"]


def test_a_path_without_a_star_is_left_to_the_override() -> None:
    assert matching_paths(OPSD, "views.teecher.weights") == ["views.teecher.weights"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("phases.*.optimizer.learning_rate", "no 'optimizer' in phases.student; did you mean 'optimiser'?"),
        ("phases.*.optimiser.learning_rat", "did you mean 'learning_rate'?"),
        ("fases.*.optimiser", "no 'fases' in the method; did you mean 'phases'?"),
        ("batch.prompts.*", "no '*' in batch.prompts"),
    ],
)
def test_a_path_that_matches_nothing_is_refused(path: str, message: str) -> None:
    with pytest.raises(OverrideError) as caught:
        matching_paths(OPSD, path)
    assert f"path {path!r} matches nothing" in str(caught.value)
    assert message in str(caught.value)


def test_the_later_of_two_changes_of_a_field_holds() -> None:
    plain = SHORTHANDS["learning_rate"].replace("*", "student")
    assert single_paths(OPSD, {plain: 1.0, "learning_rate": 2.0}) == {plain: 2.0}
    assert single_paths(OPSD, {"learning_rate": 2.0, plain: 1.0}) == {plain: 1.0}
