from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluation.data import training_order
from evaluation.results.spool import read_samples
from tests.training.sessions import cache, elsewhere, facts, open_session, small_run
from tests.training.small import NO_CLIP
from training.checkpoints import CheckpointError, load_segment, segment_report
from training.method import Overlong, Reward, override
from training.session import Session, evaluate_segment
from training.spec import ComputeSpec, RolloutTokensBudget, RunSpec, UpdatesBudget

EMA = {"kind": "ema", "teacher_update_rate": 0.3}
VARIANTS = {
    "sft": small_run("sft"),
    "grpo": small_run("grpo"),
    "opsd": small_run("opsd", NO_CLIP),
    "opsd_ema": small_run("opsd", {**NO_CLIP, "views.teacher.weights": EMA}),
    "opsd_v1_control": small_run("opsd_v1", {"views.teacher.context": "other_problem"}),
    "opsd_bf16": small_run("opsd", NO_CLIP, compute=ComputeSpec(precision="bfloat16_autocast", micro_batch_rows=2)),
}


IN_A_NEW_PROCESS = {name: VARIANTS[name] for name in ("sft", "grpo", "opsd_ema", "opsd_bf16")}
"""References, groups, an average, low precision; every method goes on in a new session in test_resume_methods."""


def _train(spec: RunSpec, run_dir: Path, segments: int = 2) -> Session:
    session = open_session(spec, run_dir)
    for segment in range(1, segments + 1):
        session.run_segment(segment)
    return session


def _weights(run_dir: Path, segment: int) -> dict[str, dict[str, torch.Tensor]]:
    files = load_segment(run_dir, segment)[1]
    return {file: {name: tensor.clone() for name, tensor in tensors.items()} for file, tensors in files.items()}


# --- resuming ----------------------------------------------------------------------------------------------------


def test_four_updates_are_two_a_new_process_and_two_to_the_bit(tmp_path: Path) -> None:
    for name, spec in IN_A_NEW_PROCESS.items():
        _train(spec, tmp_path / "whole" / name).close()
    pids = {elsewhere(IN_A_NEW_PROCESS, tmp_path / "cut", segment, attempt=segment) for segment in (1, 2)}
    assert len(pids | {os.getpid()}) == 3

    for name in IN_A_NEW_PROCESS:
        whole, cut = tmp_path / "whole" / name, tmp_path / "cut" / name
        for segment in (1, 2):
            expected, found = _weights(whole, segment), _weights(cut, segment)
            assert set(found) == set(expected)
            for file, tensors in expected.items():
                assert all(torch.equal(tensor, found[file][key]) for key, tensor in tensors.items()), (name, file)
        for kind in ("step", "rollout", "problem"):
            assert facts(cut, kind) == facts(whole, kind), (name, kind)
        assert len(facts(whole, "step")) == 4
    assert "average-0.3" in _weights(tmp_path / "whole" / "opsd_ema", 2)


def test_the_weights_really_move(tmp_path: Path) -> None:
    _train(VARIANTS["opsd_ema"], tmp_path / "run").close()

    first, second = (_weights(tmp_path / "run", segment) for segment in (1, 2))
    for file in ("student", "average-0.3"):
        assert not all(torch.equal(tensor, second[file][key]) for key, tensor in first[file].items())


def test_an_interrupted_segment_starts_again_from_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = VARIANTS["opsd"]
    _train(spec, tmp_path / "whole").close()
    session = _train(spec, tmp_path / "broken", segments=1)

    def stop(record: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(session._spool, "append", stop)  # once update 3 has changed the weights
        session.run_segment(2)
    assert segment_report(tmp_path / "broken", 2) is None
    report = session.run_segment(2)
    session.close()

    expected, found = _weights(tmp_path / "whole", 2), _weights(tmp_path / "broken", 2)
    assert all(torch.equal(tensor, found["student"][key]) for key, tensor in expected["student"].items())
    assert (report.first_update, report.last_update) == (3, 4)
    for kind in ("step", "rollout"):
        assert facts(tmp_path / "broken", kind) == facts(tmp_path / "whole", kind)


def test_a_damaged_checkpoint_is_made_again_from_the_one_before(tmp_path: Path) -> None:
    spec = small_run("sft", updates=6)
    session = _train(spec, tmp_path / "run", segments=2)
    before = _weights(tmp_path / "run", 2)
    (tmp_path / "run" / "checkpoints" / "00002" / "student.safetensors").write_bytes(b"garbage")
    session.close()

    again = open_session(spec, tmp_path / "run", attempt=2)
    with pytest.raises(CheckpointError, match=r"segment 2 of .* damaged"):
        again.run_segment(3)
    again.run_segment(2)
    assert again.run_segment(3).last_update == 6
    again.close()

    found = _weights(tmp_path / "run", 2)
    assert all(torch.equal(tensor, found["student"][key]) for key, tensor in before["student"].items())


def test_a_done_segment_is_reported_and_not_done_again(tmp_path: Path) -> None:
    spec = VARIANTS["sft"]
    first = _train(spec, tmp_path / "run")
    report = segment_report(tmp_path / "run", 1)
    first.close()

    def lines() -> int:
        return sum(len(file.read_text().splitlines()) for file in (tmp_path / "run" / "spool").glob("*.jsonl"))

    before = lines()
    second = open_session(spec, tmp_path / "run", attempt=2)
    assert second.run_segment(1) == report
    second.close()

    assert lines() == before > 0


def test_a_segment_without_the_one_before_is_refused(tmp_path: Path) -> None:
    session = open_session(VARIANTS["sft"], tmp_path / "run")

    with pytest.raises(CheckpointError, match=r"segment 1 of .* is not done"):
        session.run_segment(2)
    session.close()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    _train(VARIANTS["sft"], tmp_path / "one", segments=1).close()
    (tmp_path / "one").rename(tmp_path / "two")
    session = open_session(VARIANTS["sft"], tmp_path / "two")

    with pytest.raises(CheckpointError, match="of another run or base model"):
        session.run_segment(2)
    session.close()


# --- budgets -----------------------------------------------------------------------------------------------------


def test_an_updates_budget_ends_the_last_segment_early(tmp_path: Path) -> None:
    session = open_session(small_run("sft", updates=3), tmp_path / "run")

    first, second = session.run_segment(1), session.run_segment(2)

    assert (first.first_update, first.last_update, first.finished) == (1, 2, False)
    assert (second.first_update, second.last_update, second.finished) == (3, 3, True)
    with pytest.raises(ValueError, match="ended with segment 2: there is no segment 3"):
        session.run_segment(3)
    session.close()


def test_a_resumed_run_makes_the_planned_updates_or_fails(tmp_path: Path) -> None:
    """The data has 10 problems and a batch 3: updates 3 to 5 cross the end of an epoch."""
    spec = small_run("sft", updates=8, every=4)
    whole = _train(spec, tmp_path / "whole", segments=2)
    half = _train(spec, tmp_path / "half", segments=1)
    half.close()
    rest = open_session(spec, tmp_path / "half", attempt=2)
    report = rest.run_segment(2)
    whole.close()
    rest.close()

    assert (report.last_update, report.finished) == (8, True)
    assert facts(tmp_path / "half", "step") == facts(tmp_path / "whole", "step")


@pytest.mark.parametrize("key", ["sft", "opsd"])
def test_a_token_budget_ends_with_the_first_update_that_reaches_it(key: str, tmp_path: Path) -> None:
    probe = _train(small_run(key, updates=4), tmp_path / "probe")
    probe.close()
    kind = "reference_tokens" if key == "sft" else "rollout_tokens"
    spent = [step["cost"][kind] for step in facts(tmp_path / "probe", "step")]

    for tokens, updates in ((spent[1], 2), (spent[1] + 1, 3)):
        spec = small_run(key, every=10, budget=RolloutTokensBudget(tokens=int(tokens)))
        session = open_session(spec, tmp_path / str(tokens))
        report = session.run_segment(1)
        session.close()
        assert (report.last_update, report.finished) == (updates, True)
        assert report.cost[kind] == spent[updates - 1]


def test_a_phase_that_would_never_run_is_refused() -> None:
    assert small_run("vpd", updates=5).budget == UpdatesBudget(updates=5)
    with pytest.raises(ValueError, match=r"phases\.teacher\.every: 5 is more than the budget's 4 updates"):
        small_run("vpd", updates=4)


def test_a_budget_of_no_updates_is_refused() -> None:
    with pytest.raises(ValueError, match="0 updates train nothing"):
        small_run("sft", budget=UpdatesBudget(updates=0))


# --- what is recorded --------------------------------------------------------------------------------------------


def test_records_say_what_happened(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    spec = VARIANTS["opsd"]
    session = _train(spec, run_dir)
    session.close()
    steps, rollouts = facts(run_dir, "step"), facts(run_dir, "rollout")

    assert [(step["update"], step["segment"]) for step in steps] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    totals = [step["cost"]["rollout_tokens"] for step in steps]
    per_update = [sum(r["completion_tokens"] for r in rollouts if r["update"] == update) for update in (1, 2, 3, 4)]
    assert totals == [sum(per_update[:n]) for n in (1, 2, 3, 4)]
    assert {"loss", "loss/distill", "entropy/student", "grad_norm", "learning_rate"} <= set(steps[0]["metrics"])
    order = training_order(10, 7, 0, 12)
    problems = session._problems
    assert [r["problem_id"] for r in rollouts] == [problems[index].id for index in order]
    assert {r["weights_version"] for r in rollouts if r["update"] == 3} == {2}
    assert {r["problem_id"] for r in rollouts} == {p["problem_id"] for p in facts(run_dir, "problem")}


def test_rollouts_carry_the_methods_reward_beside_the_score(tmp_path: Path) -> None:
    spec = VARIANTS["opsd"]
    assert spec.method is not None
    overlong = Overlong(cache_tokens=2, penalty=0.5)
    rewarded = override(spec.method, "reward", Reward(on_fail=-1.0, on_pass=2.0, overlong=overlong))
    _train(spec.model_copy(update={"method": rewarded}), tmp_path / "run").close()
    rollouts = facts(tmp_path / "run", "rollout")

    assert any(r["truncated"] for r in rollouts)
    for r in rollouts:
        beyond = r["completion_tokens"] - (rewarded.sampling.max_new_tokens - 2)
        penalty = 0.5 * min(1.0, max(0.0, beyond / 2))
        assert r["reward"] == (2.0 if r["verdict"] == "pass" else -1.0) - penalty


def test_rollouts_find_their_texts_and_ids(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    session = _train(VARIANTS["opsd"], run_dir)
    session.close()

    for record in facts(run_dir, "rollout"):
        row = read_samples(run_dir, record["sample_file"], [record["sample_row"]]).to_pylist()[0]
        assert (row["update"], row["index"]) == (record["update"], record["index"])
        assert row["prompt"] == record["problem_id"] == row["problem_id"]
        assert len(row["token_ids"]) == len(row["logprobs"]) == record["completion_tokens"]
        assert len(row["prompt_ids"]) == record["prompt_tokens"]
        assert row["completion"] == session._renderer.decode(row["token_ids"])
        assert json.loads(row["contexts"])["teacher"].startswith(f"{record['problem_id'][2]}+{record['problem_id'][6]}")
        assert record["truncated"] == (row["finish_reason"] == "length")


def test_large_batches_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.recording.TOKENS_PER_FILE", 1)
    _train(VARIANTS["opsd"], tmp_path / "run").close()

    files = sorted(file.name for file in (tmp_path / "run" / "samples").iterdir())
    assert files == [f"rollouts-0000{segment}-00{part}.parquet" for segment in (1, 2) for part in (0, 1)]
    assert len({(r["sample_file"], r["sample_row"]) for r in facts(tmp_path / "run", "rollout")}) == 12


def test_solutions_that_their_grader_fails_are_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session(VARIANTS["sft"], tmp_path / "run")
    order = training_order(10, 7, 0, 6)
    first = session._problems[order[0]]
    wrong = [p.model_copy(update={"solution": "0#0"}) if p.id == first.id else p for p in session._problems]
    monkeypatch.setattr(session, "_problems", wrong)
    session.run_segment(1)
    session.close()

    shares = [step["metrics"]["solutions_graded_wrong"] for step in facts(tmp_path / "run", "step")]
    assert shares == pytest.approx([1 / 3, 0])
    assert [record.message for record in caplog.records if first.id in record.message]


def test_methods_that_see_no_solution_are_not_asked_about_them(tmp_path: Path) -> None:
    _train(VARIANTS["grpo"], tmp_path / "run", segments=1).close()

    assert "solutions_graded_wrong" not in facts(tmp_path / "run", "step")[0]["metrics"]


# --- refusals before work ----------------------------------------------------------------------------------------


def test_a_run_without_a_method_is_not_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no method"):
        open_session(small_run("sft", method=None), tmp_path / "run")


# --- evaluation --------------------------------------------------------------------------------------------------


def _evaluate(spec: RunSpec, run_dir: Path, segment: int | None) -> dict[str, Any]:
    return evaluate_segment(spec, run_dir.name, run_dir, segment, cache=cache(), benchmarks_root=None, attempt=1)


def test_an_evaluation_records_answers_and_then_its_marker(tmp_path: Path) -> None:
    run_dir, spec = tmp_path / "run", VARIANTS["sft"]
    _train(spec, run_dir).close()

    base, after = _evaluate(spec, run_dir, None), _evaluate(spec, run_dir, 2)

    assert (base["update"], after["update"]) == (0, 4)
    for marker in (base, after):
        assert json.loads((run_dir / "evaluations" / f"{marker['update']}.json").read_text()) == marker
        assert marker["benchmarks"]["addition"]["answers"] == 6
    answers = facts(run_dir, "answer")
    assert sorted({answer["update"] for answer in answers}) == [0, 4] and len(answers) == 12
    passed = [g for g in facts(run_dir, "grade") if g["verdict"] == "pass" and g["answer_key"].startswith("4/")]
    assert len(passed) == after["benchmarks"]["addition"]["passed"]
    closing = {record["update"]: record for record in facts(run_dir, "evaluation")}
    assert closing[4]["cost"]["reference_tokens"] == 4 * 3 * 32 and closing[0]["cost"] == {}


def test_an_evaluation_uses_the_checkpoints_weights(tmp_path: Path) -> None:
    """Four updates at a harmful learning rate leave nothing of the base's answers."""
    run_dir = tmp_path / "run"
    spec = small_run("sft", {"phases.student.optimiser.learning_rate": 1.0})
    spec = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"problems": 30})})
    _train(spec, run_dir).close()

    base, after = _evaluate(spec, run_dir, None), _evaluate(spec, run_dir, 2)

    assert base["benchmarks"]["addition"]["passed"] > 0
    assert after["benchmarks"]["addition"]["passed"] == 0


def test_an_evaluation_that_is_done_is_only_reported(tmp_path: Path) -> None:
    run_dir, spec = tmp_path / "run", VARIANTS["sft"]
    _train(spec, run_dir, segments=1).close()
    first = _evaluate(spec, run_dir, 1)
    lines = len(facts(run_dir, "answer"))
    spools = len(list((run_dir / "spool").iterdir()))

    assert _evaluate(spec, run_dir, 1) == first
    assert len(facts(run_dir, "answer")) == lines and len(list((run_dir / "spool").iterdir())) == spools


def test_an_evaluation_of_a_segment_that_is_not_done_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"segment 3 of .* is not done"):
        _evaluate(VARIANTS["sft"], tmp_path, 3)


# --- warm reuse --------------------------------------------------------------------------------------------------


def test_a_second_session_reuses_the_base_and_starts_from_it_unchanged(tmp_path: Path) -> None:
    spec = VARIANTS["opsd"]
    first = _train(spec, tmp_path / "a")
    second = _train(spec, tmp_path / "b")
    first.close()
    second.close()

    assert first._base is second._base and first._problems is second._problems
    expected, found = _weights(tmp_path / "a", 2), _weights(tmp_path / "b", 2)
    assert all(torch.equal(tensor, found["student"][key]) for key, tensor in expected["student"].items())
    assert facts(tmp_path / "a", "step") == facts(tmp_path / "b", "step")


def test_users_data_changed_on_disk_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"

    def write(count: int) -> None:
        rows = [
            {"problem": f"{n}+{n}", "answer": str(2 * n), "solution": f"{n}+{n}={2 * n}#{2 * n}"} for n in range(count)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    spec = small_run("sft", data={"train": str(file)})
    write(20)
    first = open_session(spec, tmp_path / "a")
    write(40)
    second = open_session(spec, tmp_path / "b")
    first.close()
    second.close()

    assert len(second._problems) > len(first._problems)
