"""What is evaluated is the model that was trained, with all weights or an adapter saved."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import training.checkpoint_evaluation
from evaluation.evaluate import evaluate
from evaluation.samplers.base import SampleRequest, SamplingParams
from tests.training.learners.small import LORA, build, learn, perturb, same
from tests.training.sessions import cache, facts, open_session, small_run
from tests.training.small import small_model
from training.checkpoint_evaluation import _answering_model, evaluate_segment
from training.checkpoints import load_segment
from training.learners.hf import HFLearner
from training.method import Adapter
from training.spec import ComputeSpec, RunSpec


def _spec(adapter: Adapter | None, precision: str) -> RunSpec:
    return small_run("opsd", {"adapter": adapter}, compute=ComputeSpec.model_validate({"precision": precision}))


def _saved(learner: HFLearner, folder: Path) -> Path:
    file = folder / "student.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in learner.state()["student"].items()}, file)
    return file


@pytest.mark.parametrize("precision", ["float32", "bfloat16_autocast"])
@pytest.mark.parametrize("adapter", [None, LORA], ids=["all", "lora"])
def test_a_checkpoint_answers_as_the_learner_samples(tmp_path: Path, adapter: Adapter | None, precision: str) -> None:
    base = small_model()
    learner = build(model=base, adapter=adapter, precision=precision, seed=3)
    perturb(learner, 0.3)
    learn(learner, 1)
    model = _answering_model(base, _saved(learner, tmp_path), _spec(adapter, precision))

    sampler = learner.sampler()
    requests, params = [SampleRequest((7, 8, 9), 1), SampleRequest((10,), 2)], SamplingParams(max_new_tokens=5)
    expected = sampler.sample(requests, params)
    sampler.model = model
    assert sampler.sample(requests, params) == expected
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_without_a_checkpoint_the_base_answers() -> None:
    base = small_model()

    assert _answering_model(base, None, _spec(LORA, "float32")) is base
    low = _answering_model(base, None, _spec(None, "bfloat16_autocast"))
    for copied, own in zip(low.parameters(), base.parameters(), strict=True):
        assert torch.equal(copied, own.to(torch.bfloat16))


def test_a_checkpoint_of_all_weights_is_no_adapter(tmp_path: Path) -> None:
    learner = build()

    with pytest.raises(ValueError, match="weights are of another model"):
        _answering_model(small_model(), _saved(learner, tmp_path), _spec(LORA, "float32"))


def test_a_lora_run_resumes_to_the_bit_saves_the_adapter_and_is_evaluated(tmp_path: Path) -> None:
    changes = {"adapter": LORA, "views.teacher.weights": {"kind": "ema", "teacher_update_rate": 0.3}}
    spec = small_run("opsd", changes)
    with closing(open_session(spec, tmp_path / "whole")) as session:
        for segment in (1, 2):
            session.run_segment(segment)
    for segment in (1, 2):
        with closing(open_session(spec, tmp_path / "cut", attempt=segment)) as session:
            session.run_segment(segment)

    expected, found = (load_segment(tmp_path / run, 2)[1] for run in ("whole", "cut"))
    assert same(found, expected)
    assert not same(found, load_segment(tmp_path / "cut", 1)[1])
    for file in ("student", "average-0.3"):
        assert all("lora_" in name or name == "adapter_scaling" for name in found[file])
    marker = evaluate_segment(spec, "cut", tmp_path / "cut", 2, cache=cache(), benchmarks_root=None, attempt=1)
    assert marker["update"] == 4 and marker["benchmarks"]["addition"]["answers"] == 6


def test_an_evaluation_cut_off_between_its_parts_goes_on_to_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = small_run("opsd", compute=ComputeSpec(sampling_rows=2))
    evaluation = spec.evaluation.model_copy(
        update={"problems": 10, "samples": 2, "sampling": SamplingParams(max_new_tokens=6)}
    )
    spec = spec.model_copy(update={"evaluation": evaluation})
    asked: list[int] = []

    def ask(run: str, attempt: int, fail_at: int | None = None) -> dict[str, Any]:
        def counted(*arguments: Any, **how: Any) -> Any:
            if len(asked) == fail_at:
                raise KeyboardInterrupt
            asked.append(len(arguments[4]))
            return evaluate(*arguments, **how)

        monkeypatch.setattr(training.checkpoint_evaluation, "evaluate", counted)
        return evaluate_segment(spec, "run", tmp_path / run, None, cache=cache(), benchmarks_root=None, attempt=attempt)

    whole = ask("whole", 1)
    assert asked == [4, 4, 2]
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        ask("cut", 1, fail_at=2)
    resumed = ask("cut", 2)
    assert asked == [4, 4, 2], "no part is asked twice"
    assert resumed["benchmarks"] == whole["benchmarks"]
    files = {run: sorted((tmp_path / run / "samples").iterdir()) for run in ("whole", "cut")}
    assert [file.name for file in files["cut"]] == [
        *(f"answers-000000-addition-test-{part:04d}.parquet" for part in range(3)),
        *(f"traces-000000-addition-test-{part:04d}.parquet" for part in range(2)),
    ]
    assert [file.read_bytes() for file in files["cut"]] == [file.read_bytes() for file in files["whole"]]
    facts_of = {run: [facts(tmp_path / run, kind) for kind in ("answer", "grade", "problem", "trace")] for run in files}
    assert facts_of["cut"] == facts_of["whole"]
    closing = facts(tmp_path / "cut", "evaluation")
    assert [(record["problems"], record["samples_per_problem"]) for record in closing] == [(10, 2)]
