"""The hidden states of one optimiser step: micro-batch by micro-batch, and kept where two passes need them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from training.accounting import Account
from training.batches import row_chunks
from training.method import Method
from training.streams import Stream
from training.trainer import Trainer
from training.views import look


@dataclass(slots=True)
class StepViews:
    """The views of some rows of a stream, under one state of the weights.

    With ``keep`` the hidden states of the views that do not learn stay for the next pass; with one micro-batch and
    ``trains`` so do the learning view's, with their graph, and no second forward is needed.
    """

    trainer: Trainer
    method: Method
    stream: Stream
    rows: range
    account: Account
    keep: bool = False
    trains: bool = True
    _kept: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def parts(self) -> list[range]:
        """The micro-batches, as ranges of rows counted from the first of the step."""
        return row_chunks(len(self.rows), self.trainer.compute.micro_batch_rows)

    def look(self, part: range, names: Iterable[str], *, grad: bool) -> tuple[dict[str, Tensor], dict[str, nn.Module]]:
        """Hidden states and heads of the named views; ``grad`` records the learning view's graph."""
        hidden, heads = {}, {}
        for name in names:
            states = self._states(name, part, grad=grad)
            hidden[name] = states if grad else states.detach()
            heads[name] = self.trainer.learner.head(self.method.views[name].weights)
        return hidden, heads

    def _states(self, name: str, part: range, *, grad: bool) -> Tensor:
        place = (name, part.start)
        if place in self._kept:
            # The last pass is the one with a gradient: nothing reads these again.
            return self._kept.pop(place) if grad else self._kept[place]
        learns, reused = name == self.stream.learns, self.keep and not grad
        if learns:
            reused = reused and self.trains and len(self.parts()) == 1
        records = learns and (grad or reused)
        states = self._forward(name, part, records)
        if reused:
            self._kept[place] = states
        return states

    def _forward(self, name: str, part: range, records: bool) -> Tensor:
        stream, learns = self.stream, name == self.stream.learns
        rows = slice(self.rows.start + part.start, self.rows.start + part.stop)
        with self.account.timed("t_train" if learns else "t_teacher"), torch.set_grad_enabled(records):
            seen = look(
                self.trainer.learner,
                self.method.views[name],
                stream.views[name].prompts[rows],
                stream.responses[rows],
                stream.names[rows],
                pad_id=self.trainer.renderer.pad_id,
                grad=records,
            )
        self.account.read(seen.tokens, grad=records, target=not learns)
        return seen.hidden
