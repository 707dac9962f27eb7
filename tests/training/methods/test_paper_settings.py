"""The numbers of the papers, written down here by hand and not taken from the specs.

Where a paper leaves a number open it is not listed; the spec's ``open_choices`` name the reading.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from tests.training.methods import numbers_with_groups, numbers_without_groups
from tests.training.methods.numbers_without_groups import D
from training.method import override
from training.methods import METHODS

PAGES = {**numbers_without_groups.PAGES, **numbers_with_groups.PAGES}

ABLATED: dict[str, dict[str, set[Any]]] = {
    "opsd": {f"{D}.divergence": {"reverse_kl", "jsd"}, f"{D}.entry_clip": {None, 0.06}},
    "sds": {
        "phases.student.terms.anchor.coefficient": {0.1, 0.5, 0.0},
        "phases.student.terms.anchor.alignment.similarity": {"rouge_l", "edit_distance", "exact_match"},
    },
    "usd": {"controllers.usd.capacity": {0.15, 0.2, 0.4, 0.5, 0.8}},
    "sdpo_science": {"views.teacher.weights": {"student", "frozen"}},
    "sr_opsd_science": {
        f"{D}.mix.share": {0.5, 0.7, 0.8, 0.85, 0.95},
        f"{D}.divergence.order": {0.5, 0.7, 0.9},
        "views.reference.context": {"none"},
    },
    "vpd": {"phases.teacher.every": {1, 10}, "views.prior.weights": {"frozen"}},
}
"""Sweeps the papers report, without the value that is the default."""


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = getattr(value, part) if isinstance(value, BaseModel) else value[part]
    return value


def test_every_method_has_its_numbers_here() -> None:
    assert set(PAGES) == set(METHODS)


@pytest.mark.parametrize("key", PAGES)
def test_settings_are_the_papers(key: str) -> None:
    assert {path: at(METHODS[key], path) for path in PAGES[key]} == PAGES[key]


@pytest.mark.parametrize("key", ABLATED)
def test_sweeps_are_the_papers(key: str) -> None:
    for path, values in ABLATED[key].items():
        listed = METHODS[key].ablations[path]
        assert {value["kind"] if isinstance(value, dict) else value for value in listed} == values


@pytest.mark.parametrize("key", ["sdpo_science", "sdpo_code", "sdpo_ttt"])
def test_the_trust_region_teacher_is_one_change(key: str) -> None:
    """q ∝ initial^0.99 · live^0.01 as an interpolation of logits, both seeing what the averaged teacher sees."""
    method = METHODS[key]
    held = [value for value in method.ablations[D] if value.get("mix")]
    views = {name: method.views[name] for name in ("teacher", "live", "initial")}

    assert [(v["against"], v["mix"]["reference"], v["mix"]["share"], v["mix"]["order"]) for v in held] == [
        ("live", "initial", 0.01, "mix_first")
    ]
    assert (views["live"].weights.kind, views["initial"].weights.kind) == ("student", "frozen")
    assert views["live"].context == views["initial"].context == views["teacher"].context
    assert "live" not in method.views_used()


def test_the_two_stages_of_the_anchored_control_never_overlap() -> None:
    (terms,) = METHODS["sds"].ablations["phases.student.terms"]
    staged = override(METHODS["sds"], "phases.student.terms", terms)
    weights = [
        tuple(staged.at(update).phases["student"].terms[name].coefficient for name in ("anchor", "distill"))
        for update in (1, 50, 51, 300)
    ]

    assert weights == [(1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)]
