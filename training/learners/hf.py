"""The learner over one Hugging Face causal language model in one process."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from evaluation.samplers.hf import HFSampler
from training.batches import ViewBatch
from training.learners.base import NonFiniteGradientError, Tensors, ViewWeights
from training.method import EmaWeights, FrozenWeights, Optimiser, StudentWeights
from training.spec import ComputeSpec

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class HFLearner:
    """Student, frozen start and moving averages of one model, and the student's AdamW.

    Master weights, moving averages and optimiser state are fp32. Under ``bfloat16_autocast`` the student and the
    averages look in bf16 autocast, frozen views are bf16 copies, and sampling uses a bf16 copy that ``synchronise``
    refreshes. Everything runs in evaluation mode: dropout is off for the student too. ``base`` is only read.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        optimiser: Optimiser,
        compute: ComputeSpec,
        weights: Sequence[ViewWeights],
        *,
        end_ids: frozenset[int],
        pad_id: int,
    ) -> None:
        self.student = trainable_copy(base)
        self.device = base.device
        config: Any = base.config.get_text_config()
        self.context_length = int(config.max_position_embeddings)
        self.hidden_size = int(config.hidden_size)
        self.parameters = sum(parameter.numel() for parameter in base.parameters())
        self.optimiser_spec = optimiser
        self.low_precision = compute.precision == "bfloat16_autocast"
        self._frozen = None
        if FrozenWeights() in weights:
            self._frozen = low_precision_copy(base) if self.low_precision else base
        self._averages = {w.teacher_update_rate: copy.deepcopy(base) for w in weights if isinstance(w, EmaWeights)}
        self._drawing = low_precision_copy(base) if self.low_precision else self.student
        self._sampler = HFSampler(self._drawing, end_ids=end_ids, pad_id=pad_id, max_rows=compute.sampling_rows)
        self._names = [name for name, _ in self.student.named_parameters()]
        self._optimiser = torch.optim.AdamW(
            self.student.parameters(),
            lr=optimiser.learning_rate,
            betas=optimiser.betas,
            eps=optimiser.epsilon,
            weight_decay=optimiser.weight_decay,
            foreach=False,
            fused=False,
        )

    # --- looking -------------------------------------------------------------------------------------------------

    def sampler(self) -> HFSampler:
        return self._sampler

    def synchronise(self) -> None:
        if self._drawing is not self.student:
            with torch.no_grad():
                for copied, master in zip(self._drawing.parameters(), self.student.parameters(), strict=True):
                    copied.copy_(master)

    def numerics(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.low_precision else nullcontext()

    def hidden(self, weights: ViewWeights, batch: ViewBatch, *, grad: bool) -> Tensor:
        model: Any = self._model(weights)
        with torch.set_grad_enabled(grad), self.numerics():
            states = model.base_model(
                input_ids=batch.ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
            ).last_hidden_state
            return batch.gather(states)

    def head(self, weights: ViewWeights) -> nn.Module:
        head = self._model(weights).get_output_embeddings()
        assert isinstance(head, nn.Module)
        return head

    def _model(self, weights: ViewWeights) -> PreTrainedModel:
        match weights:
            case StudentWeights():
                return self.student
            case FrozenWeights():
                if self._frozen is None:
                    raise ValueError("this learner was built without frozen weights")
                return self._frozen
            case EmaWeights(teacher_update_rate=rate):
                if rate not in self._averages:
                    raise ValueError(f"this learner keeps no moving average of rate {rate}")
                return self._averages[rate]

    # --- learning ------------------------------------------------------------------------------------------------

    def step(self, update: int) -> dict[str, float]:
        rate = warmed_up(self.optimiser_spec, update)
        norm = self._clip(update)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            for average_rate, average in self._averages.items():
                for slow, fast in zip(average.parameters(), self.student.parameters(), strict=True):
                    slow.lerp_(fast, average_rate)
        return {"grad_norm": norm, "learning_rate": rate}

    def _clip(self, update: int) -> float:
        named = [(name, p) for name, p in self.student.named_parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for _, p in named if p.grad is not None], foreach=False)
        value = float(norm)
        if not math.isfinite(value):
            bad = [name for name, p in named if p.grad is not None and not bool(torch.isfinite(p.grad).all())]
            self._optimiser.zero_grad(set_to_none=True)
            raise NonFiniteGradientError(
                f"update {update}: the gradient norm is {value} (not finite in {', '.join(bad[:3]) or 'the sum'}); "
                "the weights were left as they were. Lower the learning rate or look at the batch's rollouts"
            )
        nn.utils.clip_grads_with_norm_([p for _, p in named], self.optimiser_spec.max_grad_norm, norm, foreach=False)
        return value

    # --- resuming ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensors]:
        files = {"student": _weights_of(self.student), "optimiser": self._optimiser_state()}
        for rate, average in self._averages.items():
            files[_average_file(rate)] = _weights_of(average)
        return files

    def load_state(self, state: Mapping[str, Tensors]) -> None:
        expected = {"student", "optimiser", *(_average_file(rate) for rate in self._averages)}
        if set(state) != expected:
            raise ValueError(f"the checkpoint holds {sorted(state)}, this method needs {sorted(expected)}")
        load_weights(self.student, state["student"])
        for rate, average in self._averages.items():
            load_weights(average, state[_average_file(rate)])
        self._load_optimiser(state["optimiser"])
        self.synchronise()

    def _optimiser_state(self) -> Tensors:
        tensors: Tensors = {}
        for name, parameter in zip(self._names, self.student.parameters(), strict=True):
            for key, value in self._optimiser.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value.detach()
        return tensors

    def _load_optimiser(self, tensors: Tensors) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        self._optimiser.state.clear()
        for name, parameter in zip(self._names, self.student.parameters(), strict=True):
            # A parameter that never had a gradient has no state.
            moments = {key: tensors[f"{key}/{name}"] for key in _MOMENTS if f"{key}/{name}" in tensors}
            if moments:
                self._optimiser.state[parameter] = {
                    key: value.clone().to("cpu" if key == "step" else self.device) for key, value in moments.items()
                }


def warmed_up(optimiser: Optimiser, update: int) -> float:
    """Learning rate of ``update`` (from 1): linear up to ``warmup_updates``, then constant."""
    share = min(1.0, update / optimiser.warmup_updates) if optimiser.warmup_updates else 1.0
    return optimiser.learning_rate * share


def half_life(rate: float) -> float:
    """Updates after which an average of this update rate holds half of what it held: ln ½ / ln(1 − rate)."""
    return 0.0 if rate == 1 else math.log(0.5) / math.log1p(-rate)


def trainable_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A copy of ``base`` that learns, still in evaluation mode."""
    return copy.deepcopy(base).requires_grad_(True).eval()


def low_precision_copy(base: PreTrainedModel) -> PreTrainedModel:
    """A bf16 copy of ``base`` that does not learn."""
    copied: Any = copy.deepcopy(base)
    return copied.to(torch.bfloat16)


def load_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Copies ``weights`` (by parameter or buffer name, as checkpoints hold them) into ``model``."""
    own = _weights_of(model)
    if set(own) != set(weights):
        different = sorted(set(own) ^ set(weights))
        raise ValueError(f"the weights are of another model: {len(different)} names differ, first {different[0]!r}")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                raise ValueError(f"{name} is {list(weights[name].shape)} in the weights and {list(tensor.shape)} here")
            tensor.copy_(weights[name])


def _weights_of(model: PreTrainedModel) -> Tensors:
    """Parameters and persistent buffers, tied ones once; the tensors share the model's memory."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    seen = {tensor.data_ptr() for tensor in parameters.values()}
    buffers = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name not in parameters and tensor.data_ptr() not in seen
    }
    return {**parameters, **buffers}


def _average_file(rate: float) -> str:
    return f"average-{rate!r}"
