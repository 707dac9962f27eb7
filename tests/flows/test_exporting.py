"""An exported model is the trained student, whatever loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from flows.errors import UsageError
from flows.exporting import export_model
from flows.identity import identity
from flows.run_folder import RunFolder, StoredRun
from flows.settings import Settings
from tests.training.sessions import cache, open_session, small_run
from training.base_models import resolve_model
from training.checkpoints import STUDENT_FILE
from training.learners.loading import load_base
from training.learners.weights import load_weights, student_copy
from training.method import Adapter
from training.spec import RunSpec


def trained(store: Path, run_id: str, spec: RunSpec) -> Settings:
    """A run of two segments, trained in this process."""
    content = resolve_model(spec.model, cache()).content_hash
    folder = RunFolder(store / "runs" / run_id)
    folder.create(StoredRun(run_id, spec, identity(spec, content, "data"), cache(), None))
    session = open_session(spec, folder.path)
    for segment in (1, 2):
        session.run_segment(segment)
    session.close()
    return Settings(store=store, cache=cache(), benchmarks=None)


@pytest.mark.parametrize("adapter", [None, Adapter(rank=4, alpha=8, layers=("q_proj", "down_proj"))])
def test_what_transformers_loads_is_the_student(tmp_path: Path, adapter: Adapter | None) -> None:
    spec = small_run("sft", {"adapter": adapter.model_dump() if adapter else None})
    settings = trained(tmp_path, "sft-s7-abc", spec)
    exported = export_model(settings, "sft", tmp_path / "model", None)
    assert (exported.run_id, exported.update, exported.finished) == ("sft-s7-abc", 4, True)
    assert exported.adapter_merged == (adapter is not None)

    resolved = resolve_model(spec.model, cache())
    base = load_base(resolved.path, resolved.content_hash, torch.device("cpu"))
    student = student_copy(base, adapter, seed=spec.seed)
    load_weights(student, load_file(tmp_path / "runs/sft-s7-abc/checkpoints/00002" / STUDENT_FILE))
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "model")
    messages = [{"role": "user", "content": "12+34"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        logits = loaded(ids["input_ids"]).logits
        torch.testing.assert_close(logits, student(ids["input_ids"]).logits, rtol=1e-5, atol=1e-5)
        assert (logits - base(ids["input_ids"]).logits).abs().max() > 1e-3
    if adapter is None:
        for name, parameter in student.named_parameters():
            assert torch.equal(loaded.get_parameter(name), parameter)

    card = (tmp_path / "model" / "README.md").read_text()
    head, _, rest = card.removeprefix("---\n").partition("\n---\n")
    assert 'base_model: "tiny-small"' in head and "No evaluation of this checkpoint" in rest
    blocks = [json.loads(block.partition("```")[0]) for block in rest.split("```json\n")[1:]]
    assert blocks[0]["identity"]["model"] == resolved.content_hash and blocks[1] == spec.canonical()
    # The export is a base model in its own right, with the template and the hint of the one it came from.
    again = resolve_model(spec.model.model_copy(update={"name": str(tmp_path / "model")}), cache())
    assert again.privileged_template == resolved.privileged_template and again.language == resolved.language


def test_an_earlier_checkpoint_and_what_is_refused(tmp_path: Path) -> None:
    settings = trained(tmp_path, "sft-s7-abc", small_run("sft"))
    exported = export_model(settings, "sft-s7", tmp_path / "early", 2)
    assert (exported.update, exported.finished) == (2, False)
    assert "before the end" in (tmp_path / "early" / "README.md").read_text()
    for update, to, says in (
        (3, "other", "no checkpoint after update 3; kept: 2, 4"),
        (None, "early", "is there already"),
    ):
        with pytest.raises(UsageError, match=says):
            export_model(settings, "sft", tmp_path / to, update)
    with pytest.raises(UsageError, match="no run 'stf' in this store"):
        export_model(settings, "stf", tmp_path / "other", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["early", "runs"]
