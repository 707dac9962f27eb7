"""Every method: 4 updates are 2, a new session (slow: a new process) and 2, to the bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.sessions import elsewhere, facts, open_session, small_run
from training.checkpoints import load_segment
from training.methods import METHODS

CHANGES: dict[str, dict[str, Any]] = {
    # The E-step comes after the restart, on rollouts from before it; a running shift and critiques are carried too.
    "vpd": {
        "phases.teacher.every": 3,
        "phases.teacher.terms.preference.shift_rate": 0.5,
        "views.teacher.context": {"kind": "self_critique", "max_new_tokens": 5},
    },
    "dapo": {"batch.max_draws": 4, "batch.group_size": 3, "sampling.max_new_tokens": 12},
}
"""What makes a small run of a method use all that it carries from update to update."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{key: (key, CHANGES.get(key, {})) for key in METHODS},
    "opsd_v1_control": ("opsd_v1", {"views.teacher.context": "other_problem"}),
    "opsd_lora_synced": (
        "opsd",
        {
            "adapter": {"rank": 2, "alpha": 4, "layers": ("q_proj", "v_proj")},
            "views.teacher.weights": {"kind": "synced", "every": 3},
        },
    ),
    "sds_controlled": (
        "sds",
        {
            "controllers": {"anchor": {"kind": "alignment"}},
            "phases.student.terms.anchor.coefficient": {
                "kind": "controlled",
                "controller": "anchor",
                "output": "weight",
            },
        },
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_four_updates_are_two_a_new_session_and_two(name: str, tmp_path: Path) -> None:
    key, changes = VARIANTS[name]
    spec = small_run(key, changes)
    whole, cut = tmp_path / "whole" / "run", tmp_path / "cut" / "run"
    session = open_session(spec, whole)
    session.run_segment(1)
    shutil.copytree(whole, cut)  # what a killed run leaves behind
    session.run_segment(2)
    session.close()
    later = open_session(spec, cut, attempt=2)
    later.run_segment(2)
    later.close()
    assert_equal_runs(whole, cut)


@pytest.mark.slow
def test_four_updates_are_two_a_new_process_and_two(tmp_path: Path) -> None:
    specs = {name: small_run(key, changes) for name, (key, changes) in VARIANTS.items()}
    for name, spec in specs.items():
        session = open_session(spec, tmp_path / "whole" / name)
        for segment in (1, 2):
            session.run_segment(segment)
        session.close()
    first, second = (elsewhere(specs, tmp_path / "cut", segment, attempt=segment) for segment in (1, 2))
    assert first != second
    for name in specs:
        assert_equal_runs(tmp_path / "whole" / name, tmp_path / "cut" / name)


def assert_equal_runs(whole: Path, cut: Path) -> None:
    for segment in (1, 2):
        _, expected, state = load_segment(whole, segment)
        _, found, found_state = load_segment(cut, segment)
        assert set(found) == set(expected)
        for file, tensors in expected.items():
            assert set(found[file]) == set(tensors)
            assert all(torch.equal(tensor, found[file][inner]) for inner, tensor in tensors.items()), (segment, file)
        assert json.dumps(found_state["training"]) == json.dumps(state["training"])
    for kind in ("step", "rollout", "problem"):
        assert facts(cut, kind) == facts(whole, kind)
    assert len(facts(whole, "step")) == 4


def test_what_is_carried_is_really_used(tmp_path: Path) -> None:
    """The runs above would be equal too if their buffers, shifts and cursors were empty."""
    states = {}
    for name in ("vpd", "dapo", "usd", "sds_controlled"):
        session = open_session(small_run(*VARIANTS[name]), tmp_path / name)
        session.run_segment(1)
        session.run_segment(2)
        session.close()
        states[name] = [load_segment(tmp_path / name, segment)[2]["training"] for segment in (1, 2)]

    buffered = [[row["update"] for row in state["buffers"]["teacher"]] for state in states["vpd"]]
    assert [sorted(set(updates)) for updates in buffered] == [[1, 2], [4]]
    assert any(row["critiques"] for row in states["vpd"][0]["buffers"]["teacher"])
    assert states["vpd"][0]["shifts"] == {} and set(states["vpd"][1]["shifts"]) == {"preference"}
    assert states["dapo"][1]["problems_drawn"] > 4 * 2  # more than one batch of 2 an update
    assert states["usd"][0]["problems_drawn"] == 2 * 3
    first, second = (state["controllers"]["usd"] for state in states["usd"])
    assert first != second and first["share"] != 0.8
    anchors = [state["controllers"]["anchor"]["weight"] for state in states["sds_controlled"]]
    assert 1.0 > anchors[0] > 0 and anchors[1] != anchors[0]
