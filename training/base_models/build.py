"""Mid-training of a tiny base model from its recipe: same recipe, same machine, same bytes.

``python -m training.base_models.build [NAME …]`` writes the shipped checkpoints into this package again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.benchmarks.addition import ADDITION
from evaluation.benchmarks.chain import CHAIN
from evaluation.names import nearest
from training.base_models.accuracy import Shown, accuracy
from training.base_models.cache import Report
from training.base_models.contextual_items import batches
from training.base_models.item_maker import ContextualItem
from training.base_models.items import Item, ItemStream
from training.base_models.recipe import Recipe, TinyFullRecipe
from training.base_models.tokenizer import END, PAD, VOCABULARY, build_tokenizer, encode, question_ids

if TYPE_CHECKING:
    import torch
    from transformers import Qwen3ForCausalLM


RECIPE_FILE = "recipe.json"
MEASURED: dict[str, Shown] = {
    "": "nothing",
    "_with_own_solution": "own_solution",
    "_with_other_solution": "other_solution",
}
"""The ending of each figure's name in recipe.json, and what its prompts show."""


def build(recipe: Recipe, destination: Path, progress: Report | None = None) -> dict[str, float]:
    """Mid-trains ``recipe`` on one thread and saves it in bf16 as a Hugging Face folder with a recipe.json.

    Returns the measured greedy accuracies on the 200 test problems of each task, which recipe.json keeps too.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            model = mid_train(recipe, progress)
        _save(model.bfloat16(), recipe, destination)
        return _measure(recipe, destination)
    finally:
        torch.set_num_threads(threads)


def mid_train(recipe: Recipe, progress: Report | None = None) -> Qwen3ForCausalLM:
    """The fp32 model after all mid-training steps. Seeds torch's global generator."""
    import torch

    torch.manual_seed(recipe.seed)
    model = new_model(recipe).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: learning_rate_share(recipe, step))
    for step, loss in enumerate(_losses(model, recipe)):
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimiser.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, recipe.steps, f"loss {loss.item():.3f}")
    return model.eval()


def learning_rate_share(recipe: Recipe, step: int) -> float:
    """Linear warm-up to 1, then cosine to ``final_learning_rate_share``; ``step`` counts from 0."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    final = recipe.final_learning_rate_share
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


def new_model(recipe: Recipe) -> Qwen3ForCausalLM:
    """A freshly initialised model of the recipe's architecture, in fp32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=recipe.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        initializer_range=recipe.initializer_range,
        tie_word_embeddings=True,
        use_cache=True,
        pad_token_id=VOCABULARY[PAD],
        eos_token_id=VOCABULARY[END],
        bos_token_id=None,
    )
    config._attn_implementation = "eager"
    return Qwen3ForCausalLM(config).float()


def _losses(model: Qwen3ForCausalLM, recipe: Recipe) -> Iterator[torch.Tensor]:
    """The loss of each update, computed when it is asked for."""
    if isinstance(recipe, TinyFullRecipe):
        for items in batches(recipe):
            yield ragged_loss(model, items, recipe.length_groups)
        return
    stream = ItemStream(recipe)
    without = round(recipe.batch * recipe.without_context_share)
    for _ in range(recipe.steps):
        groups = [
            [stream.without_context() for _ in range(without)],
            [stream.with_context() for _ in range(recipe.batch - without)],
        ]
        yield _loss(model, [group for group in groups if group])


def _loss(model: Qwen3ForCausalLM, groups: list[list[Item]]) -> torch.Tensor:
    # The items of a group have one length (the task's numbers are zero-padded): no padding, no mask.
    import torch

    total, count = torch.zeros(()), 0
    for group in groups:
        prompts = [question_ids(item.question, item.context) for item in group]
        inputs = torch.tensor([[*p, *encode(i.seen)] for p, i in zip(prompts, group, strict=True)])
        targets = torch.tensor([[*encode(item.wanted), VOCABULARY[END]] for item in group])
        logits = model(input_ids=inputs, use_cache=False, logits_to_keep=targets.shape[1]).logits
        total = total + torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        count += targets.numel()
    return total / count


def ragged_loss(model: Qwen3ForCausalLM, items: list[ContextualItem], groups: int) -> torch.Tensor:
    """Mean cross-entropy over the scored targets of ``items``.

    Rows are padded on the right: nothing looks ahead, so padding needs no mask, and its outputs are never gathered.
    """
    import torch

    rows = [_ragged_row(item) for item in items]
    rows.sort(key=lambda row: len(row.tokens))
    size = -(-len(rows) // groups)
    pad = VOCABULARY[PAD]
    total, count = torch.zeros(()), 0
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        width = max(len(row.tokens) for row in group)
        inputs = torch.tensor([[*row.tokens, *[pad] * (width - len(row.tokens))] for row in group])
        positions = torch.arange(width).repeat(len(group), 1)
        for index, row in enumerate(group):
            positions[index, row.gap_at :] += row.gap
        places = [(index, place, target) for index, row in enumerate(group) for place, target in row.targets]
        at_row, at_place, targets = torch.tensor(places).unbind(dim=1)
        # Without an explicit mask transformers would take a gap for the border of two packed sequences.
        hidden = model.model(
            input_ids=inputs, attention_mask=torch.ones_like(inputs), position_ids=positions, use_cache=False
        ).last_hidden_state
        logits = model.lm_head(hidden[at_row, at_place])
        total = total + torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        count += len(places)
    return total / count


@dataclass(frozen=True, slots=True)
class _Row:
    tokens: list[int]
    targets: list[tuple[int, int]]
    """(index, token) of everything the item is trained on."""
    gap_at: int
    gap: int


def _ragged_row(item: ContextualItem) -> _Row:
    prompt = question_ids(item.question, item.context)
    wanted = [*encode(item.wanted), VOCABULARY[END]]
    first = len(prompt) - 1
    targets = [(first + i, token) for i, (token, counts) in enumerate(zip(wanted, item.scored, strict=True)) if counts]
    # The user's end token and the assistant's header follow the context.
    return _Row([*prompt, *encode(item.seen)], targets, gap_at=len(prompt) - 2, gap=item.gap)


def _save(model: Qwen3ForCausalLM, recipe: Recipe, destination: Path) -> None:
    from transformers import GenerationConfig

    destination.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        pad_token_id=VOCABULARY[PAD], eos_token_id=VOCABULARY[END], do_sample=False
    )
    model.save_pretrained(destination)
    build_tokenizer(recipe.max_positions).save_pretrained(destination)
    (destination / "model.safetensors").chmod(0o644)
    # The general name of the class loads in every version of transformers.
    _edit(destination / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    # transformers drops the attention choice on saving; eager is the fastest at this size on a busy machine.
    _edit(destination / "config.json", attn_implementation="eager")


def _edit(path: Path, **changes: str) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2, sort_keys=True) + "\n")


def _measure(recipe: Recipe, destination: Path) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM

    saved = AutoModelForCausalLM.from_pretrained(destination, dtype=torch.float32).eval()
    benchmarks = (ADDITION, CHAIN) if isinstance(recipe, TinyFullRecipe) else (ADDITION,)
    measured = {
        f"{'' if benchmark is ADDITION else benchmark.name + '_'}accuracy{name}": accuracy(saved, benchmark, shown)
        for benchmark in benchmarks
        for name, shown in MEASURED.items()
    }
    description = {"recipe_hash": recipe.content_hash(), "recipe": recipe.model_dump(mode="json"), "measured": measured}
    (destination / RECIPE_FILE).write_text(json.dumps(description, indent=2) + "\n")
    return measured


def main(arguments: list[str] | None = None) -> None:
    """Builds shipped tiny models anew, in their places: all of them, or those named."""
    from training.base_models.cache import with_progress_bar
    from training.base_models.catalogue import BASE_MODELS

    shipped = {
        name: (entry.recipe, entry.shipped) for name, entry in BASE_MODELS.items() if entry.recipe and entry.shipped
    }
    options = argparse.ArgumentParser(prog="python -m training.base_models.build", description=main.__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(shipped)}; all of them by default")
    names = options.parse_args(arguments).names or [*shipped]
    for name in names:
        if name not in shipped:
            options.error(f"{name!r} is no shipped tiny model{nearest(name, shipped)}")
    for name in names:
        recipe, folder = shipped[name]
        with_progress_bar(f"building {name}", lambda report: build(recipe, folder, report))  # noqa: B023


if __name__ == "__main__":
    main()
