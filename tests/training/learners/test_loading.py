from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from tests.training.small import small_model
from training.learners.loading import fix_numerics, load_base
from training.learners.weights import low_precision_copy
from training.spec import ComputeSpec

CPU = torch.device("cpu")


def test_a_base_is_fp32_frozen_and_shared(tmp_path: Path) -> None:
    low_precision_copy(small_model(seed=1)).save_pretrained(tmp_path)

    base = load_base(tmp_path, "hash-shared", CPU)

    assert {parameter.dtype for parameter in base.parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in base.parameters())
    assert not base.training
    assert load_base(tmp_path, "hash-shared", CPU) is base


def test_another_content_is_another_base(tmp_path: Path) -> None:
    for seed in (1, 2):
        small_model(seed=seed).save_pretrained(tmp_path / str(seed))

    first, second = (load_base(tmp_path / str(seed), f"hash-{seed}", CPU) for seed in (1, 2))

    assert not torch.equal(next(first.parameters()), next(second.parameters()))


def test_models_that_change_logits_after_the_head_are_refused(tmp_path: Path) -> None:
    config = Gemma2Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.5,
        initializer_range=0.5,
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="Gemma2ForCausalLM are not its output head"):
        load_base(tmp_path, "hash-gemma", CPU)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no causal language model"):
        load_base(tmp_path, "hash-empty", CPU)


def test_a_folder_with_an_adapter_is_refused(tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere/model"}')

    with pytest.raises(ValueError, match="holds an adapter: merge it into its base"):
        load_base(tmp_path, "hash-adapter", CPU)


def test_numerics_are_those_of_the_spec() -> None:
    device = fix_numerics(ComputeSpec(threads=1))

    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert device.type in ("cpu", "cuda")
