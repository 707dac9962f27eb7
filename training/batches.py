"""The next-token shift, in one place for every view, and the packing of response tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class ContextOverflowError(ValueError):
    """A prompt and its response do not fit into the model's context."""


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """Right-padded ids of one view (B rows, L columns) and where the N predictors of its response tokens sit.

    The hidden state at (``rows[i]``, ``columns[i]``) predicts response token i. Tokens run row by row, in order of
    position, so index i means the same token in every view of the same responses.
    """

    ids: Tensor
    """[B, L] int64."""
    attention_mask: Tensor
    """[B, L] int64: 1 on tokens, 0 on padding (by length, never by id)."""
    position_ids: Tensor
    """[B, L] int64."""
    rows: Tensor
    """[N] int64."""
    columns: Tensor
    """[N] int64: prompt_length − 1 + t for response token t."""

    @property
    def tokens(self) -> int:
        """Prompt and response tokens, padding left out."""
        return int(self.attention_mask.sum())

    def gather(self, hidden: Tensor) -> Tensor:
        """[B, L, D] hidden states to the [N, D] that predict the response tokens."""
        width = hidden.shape[1]
        return hidden.flatten(0, 1).index_select(0, self.rows * width + self.columns)


def align(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    pad_id: int,
    context_length: int | None = None,
    names: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
) -> ViewBatch:
    """Puts each response behind its own prompt and finds the positions that predict it.

    With a prompt of P ids, response token t (from 0) stands at column P + t and is predicted by the hidden state at
    column P − 1 + t. ``context_length`` is the most ids the model takes; ``names`` name the rows in errors.
    Raises ContextOverflowError instead of cutting, ValueError on an empty prompt or response.
    """
    if len(prompts) != len(responses):
        raise ValueError(f"{len(prompts)} prompts for {len(responses)} responses")
    names = names if names is not None else [f"row {row}" for row in range(len(prompts))]
    lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    for name, prompt, response, length in zip(names, prompts, responses, lengths, strict=True):
        if not prompt or not response:
            raise ValueError(f"{name}: empty {'response' if prompt else 'prompt'}: nothing can be predicted")
        if context_length is not None and length > context_length:
            raise ContextOverflowError(
                f"{name}: prompt of {len(prompt)} and response of {len(response)} tokens exceed the model's context "
                f"of {context_length}: shorten the context or sampling.max_new_tokens"
            )
    width = max(lengths)
    ids = torch.full((len(prompts), width), pad_id, dtype=torch.int64)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        ids[row, : lengths[row]] = torch.tensor([*prompt, *response], dtype=torch.int64)
    positions = torch.arange(width).expand(len(prompts), width)
    mask = (positions < torch.tensor(lengths)[:, None]).to(torch.int64)
    sequence, position = token_index(responses)
    starts = torch.tensor([len(prompt) - 1 for prompt in prompts], dtype=torch.int64)
    return ViewBatch(
        ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.contiguous().to(device),
        rows=sequence.to(device),
        columns=(starts[sequence] + position).to(device),
    )


def token_index(responses: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Row and position of each response token, packed row by row: two int64 tensors of N."""
    counts = torch.tensor([len(response) for response in responses], dtype=torch.int64)
    sequence = torch.repeat_interleave(torch.arange(len(responses)), counts)
    starts = torch.cumsum(counts, 0) - counts
    return sequence, torch.arange(int(counts.sum())) - starts[sequence]


def row_chunks(rows: int, most: int) -> list[range]:
    """``rows`` cut into micro-batches of at most ``most`` consecutive rows."""
    return [range(start, min(start + most, rows)) for start in range(0, rows, most)]
