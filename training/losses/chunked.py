"""The head, a chunk of tokens at a time, with the gradient computed in the forward.

The vocabulary axis exists for ``chunk_tokens`` rows of each view and no longer: each chunk is multiplied by the head,
handed to the losses in blocks of rows, and its gradient is sent back through the head at once. What is kept is the
gradient with respect to the learning view's hidden states [N, D] and to the head's trainable parameters; backward
multiplies both by the incoming gradient. Nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CPU_BLOCK_BYTES = 2 << 20
"""fp32 vocabulary rows handed to the losses together on a CPU: their temporaries then stay in the cache."""
DEVICE_BLOCK_BYTES = 128 << 20
"""The same on an accelerator: enough work a kernel launch, and a bound on the temporaries."""
BLOCK_TEMPORARIES = 10
"""fp32 tensors of one block that the losses hold at once, at most (one temperature, two views)."""
VIEW_TEMPORARIES = 4
"""The same for each further view: its distribution, and that of the mixture it enters."""

BlockLoss = Callable[[int, Mapping[str, Tensor], bool], Tensor | None]
"""(index of the block's first token, logits of each view [n, V], gradient wanted) -> d loss / d logits [n, V]."""


@dataclass
class HeadGradients:
    """Gradients of the summed block losses, added up chunk by chunk."""

    hidden: Tensor | None
    """[N, D] of the learning view; None where its hidden states require none."""
    trainable: list[nn.Parameter]
    parameters: list[Tensor]
    """One for each trainable parameter of the head, in fp32 or wider."""
    _logits: Tensor | None = None

    def wanted(self) -> bool:
        return self.hidden is not None or bool(self.trainable)

    def logits_buffer(self, like: Tensor) -> Tensor:
        """Room for ∂L/∂logits of a chunk; the same memory for every chunk."""
        if self._logits is None or self._logits.dtype != like.dtype or len(self._logits) < len(like):
            self._logits = torch.empty_like(like, requires_grad=False)
        return self._logits[: len(like)]

    def add(self, start: int, leaf: Tensor, logits: Tensor, by_logits: Tensor) -> None:
        """Send one chunk's ∂L/∂logits back through the head."""
        wrt: list[Tensor] = [*([leaf] if self.hidden is not None else []), *self.trainable]
        parts = torch.autograd.grad(logits, wrt, by_logits)
        if self.hidden is not None:
            self.hidden[start : start + len(leaf)] = parts[0]
        for total, part in zip(self.parameters, parts[len(parts) - len(self.trainable) :], strict=True):
            total += part


def block_rows(width: int, device: torch.device, chunk_tokens: int) -> int:
    """Rows of one block, bounded by CPU_BLOCK_BYTES or DEVICE_BLOCK_BYTES."""
    limit = CPU_BLOCK_BYTES if device.type == "cpu" else DEVICE_BLOCK_BYTES
    return max(1, min(chunk_tokens, limit // (4 * width)))


def predicted_bytes(
    chunk_tokens: int, width: int, logits_bytes: Mapping[str, int], learns: str, device: torch.device
) -> int:
    """Peak memory of the vocabulary axis: logits of one chunk for every view, their gradient, one block's temporaries.

    ``logits_bytes`` is the size of one logit in each view. The number of tokens N does not enter; what does grow with
    N is the gradient of the hidden states, and with a trainable head its weight gradient comes on top twice.
    """
    chunk = chunk_tokens * width * (sum(logits_bytes.values()) + logits_bytes[learns])
    temporaries = BLOCK_TEMPORARIES + VIEW_TEMPORARIES * max(0, len(logits_bytes) - 2)
    return chunk + temporaries * block_rows(width, device, chunk_tokens) * width * 4


def run_head(
    hidden: Mapping[str, Float[Tensor, "n _"]],
    heads: Mapping[str, nn.Module],
    learns: str,
    block_loss: BlockLoss,
    chunk_tokens: int,
) -> HeadGradients:
    """Call ``block_loss`` on every token's logits, and collect the gradient for view ``learns``.

    Gradients are computed only if autograd is on and the hidden states or a head parameter require one.
    """
    learning, recording = hidden[learns], torch.is_grad_enabled()
    trainable = trainable_parameters(heads[learns]) if recording else []
    gradients = HeadGradients(
        hidden=torch.zeros_like(learning) if recording and learning.requires_grad else None,
        trainable=trainable,
        parameters=[torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trainable],
    )
    for start in range(0, len(learning), chunk_tokens):
        inputs = {view: states[start : start + chunk_tokens].detach() for view, states in hidden.items()}
        _run_chunk(start, inputs, heads, learns, block_loss, gradients)
    return gradients


def _run_chunk(
    start: int,
    inputs: dict[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str,
    block_loss: BlockLoss,
    gradients: HeadGradients,
) -> None:
    leaf, wanted = inputs[learns], gradients.wanted()
    if gradients.hidden is not None:
        leaf.requires_grad_()
    with torch.set_grad_enabled(wanted):
        learning_logits = heads[learns](leaf)
    with torch.no_grad():
        logits = {view: heads[view](states) for view, states in inputs.items() if view != learns}
    logits[learns] = learning_logits.detach()
    # A wider vocabulary is cut to the narrowest: padded ids then have probability 0 on every side.
    width = min(values.shape[-1] for values in logits.values())
    by_logits = gradients.logits_buffer(learning_logits) if wanted else None
    if by_logits is not None:
        by_logits[:, width:] = 0
    step = block_rows(width, leaf.device, len(leaf))
    for first in range(0, len(leaf), step):
        block = {view: values[first : first + step, :width] for view, values in logits.items()}
        with torch.autocast(leaf.device.type, enabled=False):
            part = block_loss(start + first, block, wanted)
        if by_logits is not None:
            assert part is not None
            by_logits[first : first + step, :width] = part
    if by_logits is not None:
        gradients.add(start, leaf, learning_logits, by_logits)


def trainable_parameters(head: nn.Module) -> list[nn.Parameter]:
    """The head's parameters that require a gradient (tied embeddings and adapters included)."""
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


class _WithGradients(torch.autograd.Function):
    """A value whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [tensor.dtype for tensor in inputs]
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        (incoming,) = grad_outputs
        scaled = [
            (saved * incoming.to(saved.dtype)).to(dtype)
            for saved, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return (None, None, *scaled)


def attach(value: Float[Tensor, ""], gradients: HeadGradients, hidden: Tensor) -> Float[Tensor, ""]:
    """``value`` as a scalar whose backward sends ``gradients`` to ``hidden`` and to the head's parameters."""
    if not gradients.wanted():
        return value
    if gradients.hidden is None:
        return _WithGradients.apply(value, tuple(gradients.parameters), *gradients.trainable)
    return _WithGradients.apply(value, (gradients.hidden, *gradients.parameters), hidden, *gradients.trainable)
