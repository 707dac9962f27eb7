"""Mid-training of a tiny base model from its recipe: same recipe, same machine, same bytes.

``python -m training.base_models.build`` writes the shipped checkpoints into this package again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from training.base_models.accuracy import addition_accuracy
from training.base_models.cache import Report
from training.base_models.contextual_items import ContextualItem, batches
from training.base_models.items import Item, ItemStream
from training.base_models.recipe import Recipe, TinyFullRecipe
from training.base_models.tokenizer import END, PAD, VOCABULARY, build_tokenizer, encode, question_ids

if TYPE_CHECKING:
    import torch
    from transformers import Qwen3ForCausalLM


RECIPE_FILE = "recipe.json"


def build(recipe: Recipe, destination: Path, progress: Report | None = None) -> dict[str, float]:
    """Mid-trains ``recipe`` on one thread and saves it in bf16 as a Hugging Face folder with a recipe.json.

    Returns the measured greedy accuracies on the 200 addition test problems, which recipe.json keeps too.
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
            yield _ragged_loss(model, items, recipe.length_groups)
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


def _ragged_loss(model: Qwen3ForCausalLM, items: list[ContextualItem], groups: int) -> torch.Tensor:
    """Mean cross-entropy over the scored targets of ``items``.

    Rows are padded on the right: nothing looks ahead, so padding needs no mask, and its outputs are never gathered.
    """
    import torch

    rows = [_ragged_row(item) for item in items]
    rows.sort(key=lambda row: len(row[0]))
    size = -(-len(rows) // groups)
    total, count = torch.zeros(()), 0
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        width = max(len(tokens) for tokens, _ in group)
        inputs = torch.tensor([[*tokens, *[VOCABULARY[PAD]] * (width - len(tokens))] for tokens, _ in group])
        places = [(row, place, target) for row, (_, wanted) in enumerate(group) for place, target in wanted]
        at_row, at_place, targets = torch.tensor(places).unbind(dim=1)
        hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[at_row, at_place])
        total = total + torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        count += len(places)
    return total / count


def _ragged_row(item: ContextualItem) -> tuple[list[int], list[tuple[int, int]]]:
    """The input ids of one item, and (position, target) of everything it is trained on."""
    prompt = question_ids(item.question, item.context)
    targets = [*encode(item.wanted), VOCABULARY[END]]
    places = [
        (len(prompt) - 1 + index, target)
        for index, (target, counts) in enumerate(zip(targets, item.scored, strict=True))
        if counts
    ]
    return [*prompt, *encode(item.seen)], places


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
    measured = {
        "accuracy": addition_accuracy(saved, "nothing"),
        "accuracy_with_own_solution": addition_accuracy(saved, "own_solution"),
        "accuracy_with_other_solution": addition_accuracy(saved, "other_solution"),
    }
    description = {"recipe_hash": recipe.content_hash(), "recipe": recipe.model_dump(mode="json"), "measured": measured}
    (destination / RECIPE_FILE).write_text(json.dumps(description, indent=2) + "\n")
    return measured


def main() -> None:
    """Builds every shipped tiny model anew, in its place."""
    from training.base_models.cache import with_progress_bar
    from training.base_models.catalogue import BASE_MODELS

    for entry in BASE_MODELS.values():
        if entry.recipe is not None and entry.shipped is not None:
            recipe, folder = entry.recipe, entry.shipped
            with_progress_bar(f"building {entry.name}", lambda report: build(recipe, folder, report))  # noqa: B023


if __name__ == "__main__":
    main()
