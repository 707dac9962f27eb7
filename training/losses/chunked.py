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

BlockLoss = Callable[[int, Mapping[str, Tensor], bool], Tensor | None]
"""(index of the block's first token, logits of each view [n, V], gradient wanted) -> d loss / d logits [n, V]."""


@dataclass(frozen=True)
class HeadGradients:
    """Gradients of the summed block losses; None where nothing asked for one."""

    hidden: Tensor | None
    parameters: list[Tensor]


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
    return chunk + BLOCK_TEMPORARIES * block_rows(width, device, chunk_tokens) * width * 4


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
    learning = hidden[learns]
    trainable = trainable_parameters(heads[learns]) if torch.is_grad_enabled() else []
    hidden_gradient = torch.zeros_like(learning) if torch.is_grad_enabled() and learning.requires_grad else None
    parameter_gradients = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trainable]
    for start in range(0, len(learning), chunk_tokens):
        rows = slice(start, start + chunk_tokens)
        inputs = {view: states[rows].detach() for view, states in hidden.items()}
        _run_chunk(inputs, heads, learns, block_loss, start, hidden_gradient, trainable, parameter_gradients)
    return HeadGradients(hidden_gradient, parameter_gradients)


def _run_chunk(
    inputs: dict[str, Tensor],
    heads: Mapping[str, nn.Module],
    learns: str,
    block_loss: BlockLoss,
    start: int,
    hidden_gradient: Tensor | None,
    trainable: list[nn.Parameter],
    parameter_gradients: list[Tensor],
) -> None:
    wanted = hidden_gradient is not None or bool(trainable)
    leaf = inputs[learns]
    if hidden_gradient is not None:
        leaf.requires_grad_()
    with torch.set_grad_enabled(wanted):
        learning_logits = heads[learns](leaf)
    with torch.no_grad():
        logits = {view: heads[view](states) for view, states in inputs.items() if view != learns}
    logits[learns] = learning_logits.detach()
    # A wider vocabulary is cut to the narrowest: padded ids then have probability 0 on every side.
    width = min(values.shape[-1] for values in logits.values())
    logits = {view: values[:, :width] for view, values in logits.items()}
    gradient = torch.empty_like(learning_logits, requires_grad=False) if wanted else None
    if gradient is not None:
        gradient[:, width:] = 0
    step = block_rows(width, leaf.device, len(leaf))
    for first in range(0, len(leaf), step):
        block = {view: values[first : first + step] for view, values in logits.items()}
        with torch.autocast(leaf.device.type, enabled=False):
            part = block_loss(start + first, block, wanted)
        if gradient is not None and part is not None:
            gradient[first : first + step, :width] = part
    if gradient is None:
        return
    wrt: list[Tensor] = [*([leaf] if hidden_gradient is not None else []), *trainable]
    parts = torch.autograd.grad(learning_logits, wrt, gradient)
    if hidden_gradient is not None:
        hidden_gradient[start : start + len(leaf)] = parts[0]
    for total, part in zip(parameter_gradients, parts[len(parts) - len(trainable) :], strict=True):
        total += part


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


def attach(value: Float[Tensor, ""], gradients: HeadGradients, hidden: Tensor, head: nn.Module) -> Float[Tensor, ""]:
    """``value`` as a scalar whose backward sends ``gradients`` to ``hidden`` and to the head's parameters."""
    inputs: list[Tensor] = [hidden] if gradients.hidden is not None else []
    saved = [gradients.hidden] if gradients.hidden is not None else []
    if torch.is_grad_enabled():
        inputs += trainable_parameters(head)
        saved += gradients.parameters
    if not inputs:
        return value
    return _WithGradients.apply(value, tuple(saved), *inputs)
