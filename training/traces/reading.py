"""Per-token values of a student and a teacher at the same responses, block by block of the vocabulary axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.losses.chunked import run_head
from training.losses.distributions import Distribution, softmax
from training.losses.divergences import forward_kl

TOP = 5
"""Likeliest tokens that are kept of each side."""


class Side(NamedTuple):
    """One view at N tokens."""

    logprob: Tensor
    """[N]: log p of the response's token."""
    entropy: Tensor
    """[N], in nats."""
    top: Tensor
    """[N, TOP] int64: the likeliest ids, most likely first."""
    top_prob: Tensor
    """[N, TOP]: their probabilities."""
    other_prob: Tensor | None
    """[N, TOP]: their probabilities to the other side."""

    def part(self, tokens: slice) -> Side:
        """Some consecutive tokens."""
        other = None if self.other_prob is None else self.other_prob[tokens]
        return Side(self.logprob[tokens], self.entropy[tokens], self.top[tokens], self.top_prob[tokens], other)


class Sides(NamedTuple):
    """Both views at N tokens; ``teacher`` and ``forward_kl`` (KL(teacher ‖ student), [N]) None without a teacher."""

    student: Side
    teacher: Side | None
    forward_kl: Tensor | None

    def part(self, tokens: slice) -> Sides:
        """Some consecutive tokens."""
        teacher = None if self.teacher is None else self.teacher.part(tokens)
        return Sides(self.student.part(tokens), teacher, None if self.forward_kl is None else self.forward_kl[tokens])


def read_sides(
    hidden: Mapping[str, Tensor],
    heads: Mapping[str, nn.Module],
    ids: Tensor,
    student: str,
    teacher: str | None,
    *,
    temperature: float,
    chunk_tokens: int,
) -> Sides:
    """What both views give at the hidden states [N, D] that predict ``ids``; softmax over logits / temperature."""
    blocks: list[Sides] = []

    def read(start: int, logits: Mapping[str, Tensor], gradient_wanted: bool) -> None:
        own = softmax(logits[student], temperature)
        labels = ids[start : start + len(own.probs)]
        if teacher is None:
            blocks.append(Sides(_side(own, labels, None), None, None))
            return
        other = softmax(logits[teacher], temperature)
        kl = forward_kl(other, own).loss
        blocks.append(Sides(_side(own, labels, other), _side(other, labels, own), kl))

    shown = {name: hidden[name] for name in (student, teacher) if name is not None}
    with torch.no_grad():
        run_head(shown, heads, student, read, chunk_tokens)
    return joined(blocks)


def _side(own: Distribution, labels: Tensor, other: Distribution | None) -> Side:
    top = own.probs.topk(min(TOP, own.probs.shape[-1]), dim=-1)
    return Side(
        own.at(labels),
        own.entropy(),
        top.indices,
        top.values,
        None if other is None else other.probs.gather(-1, top.indices),
    )


def joined(parts: list[Sides]) -> Sides:
    """Blocks or micro-batches in a row."""
    teachers = [part.teacher for part in parts if part.teacher is not None]
    kls = [part.forward_kl for part in parts if part.forward_kl is not None]
    return Sides(
        _joined([part.student for part in parts]),
        _joined(teachers) if teachers else None,
        torch.cat(kls) if kls else None,
    )


def _joined(sides: list[Side]) -> Side:
    others = [side.other_prob for side in sides if side.other_prob is not None]
    return Side(
        torch.cat([side.logprob for side in sides]),
        torch.cat([side.entropy for side in sides]),
        torch.cat([side.top for side in sides]),
        torch.cat([side.top_prob for side in sides]),
        torch.cat(others) if others else None,
    )
