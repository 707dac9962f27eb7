"""The ways to compute one loss and its gradient with respect to the student's hidden states."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.bench.losses import LOSSES, TOP_K
from training.objective import TokenBatch, objective


@dataclass(frozen=True)
class Size:
    """One measurement: ``loss`` is a key of LOSSES, ``threads`` OpenMP threads, best of ``repeats``."""

    tokens: int
    hidden: int
    vocabulary: int
    chunk: int
    dtype: str
    threads: int
    repeats: int
    loss: str = "forward_kl"

    def label(self) -> str:
        threads = f"{self.threads} thread" + "s" * (self.threads != 1)
        shape = f"N={self.tokens} H={self.hidden} V={self.vocabulary}"
        return f"{self.loss}: {shape} {self.dtype}, chunk {self.chunk}, {threads}"


HeadPath = Callable[[Size, Tensor, Tensor, nn.Linear, Tensor], tuple[float, Tensor]]
"""(size, student hidden [N, H], teacher hidden [N, H], head, token ids [N]) -> loss, gradient of the student's."""


def products(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    gradient = torch.empty_like(student)
    with torch.no_grad():
        for start in range(0, size.tokens, size.chunk):
            rows = slice(start, start + size.chunk)
            if LOSSES[size.loss].needs_teacher:
                torch.mm(teacher[rows], head.weight.T)
            gradient[rows] = torch.mm(torch.mm(student[rows], head.weight.T), head.weight)
    return float("nan"), gradient


def _plain(size: Size, head: nn.Linear, student: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    """The summed loss as one would write it first; also the reference the others are checked against."""
    loss = LOSSES[size.loss]
    ours = torch.log_softmax(head(student).float(), dim=-1)
    theirs = ours.detach()
    if loss.needs_teacher:
        with torch.no_grad():
            theirs = torch.log_softmax(head(teacher).float(), dim=-1)
    return loss.plain(ours, theirs, ids)


def full(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    return _differentiated(_plain(size, head, student, teacher, ids) / size.tokens, student)


def chunked(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    ones = torch.ones(len(ids))
    batch = TokenBatch(
        ids=ids,
        sequence=torch.zeros_like(ids),
        position=torch.arange(len(ids)),
        mask={},
        advantage={size.loss: ones},
    )
    hidden = {"student": student, "teacher": teacher}
    heads: dict[str, nn.Module] = {"student": head, "teacher": head}
    result = objective({size.loss: LOSSES[size.loss].term}, batch, hidden, heads, chunk_tokens=size.chunk)
    return _differentiated(result.loss, student)


def checkpointed(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    total = torch.zeros(())
    parts = (student.split(size.chunk), teacher.split(size.chunk), ids.split(size.chunk))
    for ours, theirs, tokens in zip(*parts, strict=True):
        part = checkpoint(_plain, size, head, ours, theirs, tokens, use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    return _differentiated(total / size.tokens, student)


def trl(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    """TRL's own functions; they get logits in the head's dtype, as its trainers hand them over."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.sdpo import loss_utils  # pyrefly: ignore

    alpha = {"forward_kl": 0.0, "reverse_kl": 1.0, "jsd": 0.5, "top_k_tail": 1.0}[size.loss]
    with torch.no_grad():
        target = head(teacher)
    logits = head(student)
    if size.loss == "top_k_tail":
        top = {"distillation_topk": min(TOP_K, size.vocabulary - 1), "distillation_add_tail": True}
        loss = loss_utils.compute_topk_self_distillation_loss(logits, target, distillation_alpha=alpha, **top)
    else:
        loss = loss_utils.compute_full_logit_self_distillation_loss(logits, target, distillation_alpha=alpha)
    return _differentiated(loss.sum() / size.tokens, student)


def liger(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear, ids: Tensor) -> tuple[float, Tensor]:
    """Liger's chunked Jensen-Shannon loss, cross-entropy weight 0, in plain torch (its Triton parts need a GPU)."""
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss  # pyrefly: ignore

    beta = {"forward_kl": 0.0, "reverse_kl": 1.0, "jsd": 0.5}[size.loss]
    loss = LigerFusedLinearJSDLoss(
        weight_hard_loss=0.0, weight_soft_loss=1.0, beta=beta, compiled=False, chunk_size=size.chunk
    )
    return _differentiated(loss(student, head.weight, teacher, head.weight, ids), student)


def _differentiated(loss: Tensor, student: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, student)
    return float(loss.detach()), gradient


PATHS: dict[str, HeadPath] = {
    "products": products,
    "full": full,
    "chunked": chunked,
    "checkpoint": checkpointed,
    "trl": trl,
    "liger": liger,
}
_PEERS = {
    "trl": ("trl", {"forward_kl", "reverse_kl", "jsd", "top_k_tail"}),
    "liger": ("liger_kernel", {"forward_kl", "reverse_kl", "jsd"}),
}
"""Peer libraries, and the losses that they have too."""


def paths_of(loss: str) -> list[str]:
    """The paths that can compute ``loss`` here: peers only where they are installed and know it."""
    return [
        name
        for name in PATHS
        if name not in _PEERS or (loss in _PEERS[name][1] and importlib.util.find_spec(_PEERS[name][0]) is not None)
    ]


def absent_peers() -> list[str]:
    """Peer libraries that are not installed."""
    return [module for module, _ in _PEERS.values() if importlib.util.find_spec(module) is None]
