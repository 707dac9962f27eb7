"""TRL's published loss functions as a peer: our objective must give their numbers where both define the same loss."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.method import (
    JSD,
    Distill,
    ForwardKL,
    GroupAdvantage,
    Importance,
    PolicyGradient,
    ReverseKL,
    SampledKL,
    TopKSupport,
)
from training.method.terms import AnyTerm
from training.objective import Denominators, TokenBatch, objective

VOCABULARY, WIDTH = 13, 7
LENGTHS = (4, 1, 6, 3)
LONGEST = 8

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def peer(module: str, name: str) -> Any:
    """TRL takes seconds to import, so only the tests that use it do."""
    return getattr(pytest.importorskip(f"trl.{module}", reason="TRL is not installed (extra dev)"), name)


DIVERGENCES: list[tuple[float, Any]] = [
    (0.0, ForwardKL()),
    (1.0, ReverseKL()),
    (0.5, JSD(beta=0.5)),
    (0.3, JSD(beta=0.3)),
]


class Case:
    """Ragged responses of one batch: hidden states, heads, ids, in float64."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        count = sum(LENGTHS)
        self.hidden = normal(count, WIDTH).requires_grad_()
        self.teacher = normal(count, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.float64).requires_grad_(False)
        self.head.weight.copy_(normal(VOCABULARY, WIDTH))
        self.ids = torch.randint(VOCABULARY, (count,), generator=generator)
        self.sequence = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
        self.position = torch.cat([torch.arange(length) for length in LENGTHS])
        self.advantage = normal(len(LENGTHS))
        own = torch.log_softmax(self.head(self.hidden.detach()), -1).gather(-1, self.ids[:, None]).squeeze(-1)
        self.old = own + 0.4 * normal(count)

    def padded(self, packed: Tensor) -> Tensor:
        """[N, …] to [B, LONGEST, …], zeros after each response."""
        out = packed.new_zeros(len(LENGTHS), LONGEST, *packed.shape[1:])
        return out.index_put((self.sequence, self.position), packed)

    @property
    def reference_logprobs(self) -> Tensor:
        return torch.log_softmax(self.head(self.teacher), -1).gather(-1, self.ids[:, None]).squeeze(-1)

    @property
    def mask(self) -> Tensor:
        return self.padded(torch.ones(len(self.ids), dtype=torch.float64))

    def ours(self, *given: AnyTerm) -> tuple[Tensor, Tensor]:
        terms = {f"term {index}": term for index, term in enumerate(given)}
        batch = TokenBatch(
            ids=self.ids,
            sequence=self.sequence,
            position=self.position,
            mask={},
            advantage={name: self.advantage[self.sequence] for name in terms},
            old_logprobs={1.0: self.old},
        )
        denominators = Denominators.of(terms, batch, LONGEST)
        views = {"student": self.hidden, "teacher": self.teacher}
        heads: dict[str, nn.Module] = {"student": self.head, "teacher": self.head}
        result = objective(terms, batch, views, heads, denominators=denominators, chunk_tokens=5)
        return result.loss.detach(), torch.autograd.grad(result.loss, self.hidden)[0]

    def theirs(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        return loss.detach(), torch.autograd.grad(loss, self.hidden)[0]


def agree(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(first, second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("beta", "divergence"), DIVERGENCES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gkd(beta: float, divergence: Any, temperature: float) -> None:
    case = Case(seed=1)
    labels = torch.where(case.mask > 0, 0, -100)
    loss = peer("experimental.gkd.gkd_trainer", "GKDTrainer").generalized_jsd_loss(
        case.padded(case.head(case.hidden)),
        case.padded(case.head(case.teacher)),
        labels=labels,
        beta=beta,
        temperature=temperature,
        num_items_in_batch=sum(LENGTHS),
    )
    agree(case.ours(Distill(divergence=divergence, temperature=temperature)), case.theirs(loss))


def sdpo(function: str) -> Any:
    return peer("experimental.sdpo.loss_utils", function)


@pytest.mark.parametrize(("alpha", "divergence"), DIVERGENCES)
@pytest.mark.parametrize("k", [None, 4])
@pytest.mark.parametrize("tail", [True, False])
def test_sdpo(alpha: float, divergence: Any, k: int | None, tail: bool) -> None:
    case = Case(seed=2)
    logits, target = case.head(case.hidden), case.head(case.teacher)
    term = Distill(divergence=divergence)
    if k is None:
        loss = sdpo("compute_full_logit_self_distillation_loss")(logits, target, distillation_alpha=alpha)
    else:
        rest: Any = "tail" if tail else "renormalise"
        term = Distill(divergence=divergence, support=TopKSupport(k=k, of="student", rest=rest))
        loss = sdpo("compute_topk_self_distillation_loss")(
            logits, target, distillation_topk=k, distillation_alpha=alpha, distillation_add_tail=tail
        )
    agree(case.ours(term), case.theirs(loss.mean()))


def test_sdpo_importance_clip() -> None:
    case = Case(seed=3)
    logits, target = case.head(case.hidden), case.head(case.teacher)
    own = torch.log_softmax(logits, -1).gather(-1, case.ids[:, None]).squeeze(-1)
    loss = sdpo("compute_full_logit_self_distillation_loss")(logits, target, distillation_alpha=1.0)
    loss = sdpo("apply_importance_sampling_clipping")(loss, own, case.old, clip_coeff=1.2)
    term = Distill(divergence=ReverseKL(), importance=Importance(clip=1.2))
    agree(case.ours(term), case.theirs(loss.mean()))


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("delta", [None, 1.5])
@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_grpo(loss_type: str, delta: float | None, beta: float) -> None:
    case = Case(seed=4)
    own = torch.log_softmax(case.head(case.hidden), -1).gather(-1, case.ids[:, None]).squeeze(-1)
    loss = _trl_grpo(case, own, loss_type, delta, beta)
    reductions: dict[str, Any] = {"grpo": "sequence_mean", "dr_grpo": "constant", "dapo": "token_mean"}
    term = PolicyGradient(
        advantage=GroupAdvantage(),
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=delta,
        temperature=1.0,
        reduction=reductions[loss_type],
    )
    # TRL bounds the ratio before the smaller product is taken: with delta above 1 + clip_high that is the dual clip.
    reference = SampledKL(
        against="teacher", estimator="k3", temperature=1.0, reduction=reductions[loss_type], coefficient=beta
    )
    agree(case.ours(term, reference), case.theirs(loss))


def _trl_grpo(case: Case, own: Tensor, loss_type: str, delta: float | None, beta: float) -> Tensor:
    """GRPOTrainer's loss on a trainer that is only as much built as the loss reads."""
    trainer = object.__new__(peer("trainer.grpo_trainer", "GRPOTrainer"))
    entropies = torch.zeros(len(LENGTHS), LONGEST, dtype=torch.float64)
    log_probs = case.padded(own)
    trainer.__dict__.update(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (log_probs, entropies, None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=beta,
        loss_type=loss_type,
        epsilon_low=0.2,
        epsilon_high=0.28,
        args=SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=False,
        model=SimpleNamespace(training=False),
        max_completion_length=LONGEST,
        current_gradient_accumulation_steps=1,
        accelerator=_OneProcess(),
        _entropy_bonus_enabled=False,
        _metrics={"eval": _Lists(), "train": _Lists()},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(LENGTHS), 1),
        "completion_ids": case.padded(case.ids),
        "completion_mask": case.mask,
        "advantages": case.advantage,
        "old_per_token_logps": case.padded(case.old),
        "ref_per_token_logps": case.padded(case.reference_logprobs),
        "num_items_in_batch": torch.tensor(float(sum(LENGTHS))),
    }
    return trainer._compute_loss(None, inputs)


class _OneProcess:
    """What accelerate does with a single process."""

    num_processes = 1

    def gather(self, values: Tensor) -> Tensor:
        return values

    def reduce(self, values: Tensor, reduction: str) -> Tensor:
        return values


class _Lists(dict[str, list[float]]):
    def __missing__(self, key: str) -> list[float]:
        self[key] = []
        return self[key]
