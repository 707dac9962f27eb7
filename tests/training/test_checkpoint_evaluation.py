"""What is evaluated is the model that was trained, with all weights or an adapter saved."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from evaluation.samplers.base import SampleRequest, SamplingParams
from tests.training.learners.small import LORA, build, learn, perturb, same
from tests.training.sessions import cache, open_session, small_run
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
