"""The learner over one Hugging Face causal language model in one process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from evaluation.samplers.hf import HFSampler
from evaluation.samplers.stopping import Decode
from training.batches import ViewBatch
from training.learners.adapters import adapted
from training.learners.base import STUDENT, Tensors, ViewWeights
from training.learners.optimiser import PhasedAdamW
from training.learners.weights import (
    assign,
    check_weights,
    load_weights,
    low_precision_copy,
    student_copy,
    varying,
    weights_of,
)
from training.method import (
    Adapter,
    EmaWeights,
    FrozenWeights,
    Optimiser,
    PhaseStartWeights,
    StudentWeights,
    SyncedWeights,
)
from training.spec import ComputeSpec

PHASE_START = PhaseStartWeights()


class HFLearner:
    """Student, the other weights that views look through, and one AdamW for all phases.

    ``optimisers`` are by phase. All other weights start from the student's start. Master weights, averages and
    optimiser state are fp32. Under ``bfloat16_autocast`` student, averages and copies look in bf16 autocast, frozen
    views are bf16 copies, and sampling uses bf16 copies. Everything runs in evaluation mode: dropout is off for the
    student too.

    With an ``adapter`` only the adapter learns (A drawn from ``seed``) and only adapters are averaged, copied and
    saved: all weights share the parameters of ``base``, and the frozen ones are ``base`` itself, also under autocast.
    ``base`` is only read. ``weights`` are those that views need besides the student's.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        optimisers: Mapping[str, Optimiser],
        compute: ComputeSpec,
        weights: Sequence[ViewWeights],
        *,
        end_ids: frozenset[int],
        pad_id: int,
        adapter: Adapter | None,
        seed: int,
        decode: Decode | None = None,
    ) -> None:
        self.student = student_copy(base, adapter, seed=seed)
        self.device = base.device
        config: Any = base.config.get_text_config()
        self.context_length = int(config.max_position_embeddings)
        self.hidden_size = int(config.hidden_size)
        learning = [parameter.numel() for parameter in varying(self.student).values()]
        self.parameters = sum(parameter.numel() for parameter in base.parameters())
        self.trained_parameters = sum(learning)
        if adapter is not None:
            self.parameters += self.trained_parameters
        self.low_precision = compute.precision == "bfloat16_autocast"
        self._base, self._adapter, self._seed = base, adapter, seed
        self._models: dict[ViewWeights, PreTrainedModel] = {}
        for kind in weights:
            if isinstance(kind, FrozenWeights):
                self._models[kind] = low_precision_copy(base) if self.low_precision and adapter is None else base
            elif not isinstance(kind, StudentWeights):
                self._models[kind] = student_copy(base, adapter, seed=seed).requires_grad_(False)
        self._in_phase = False
        self._drawing: dict[ViewWeights, PreTrainedModel] = {}
        self._low_base: PreTrainedModel | None = None
        self._sampling: dict[str, Any] = {
            "end_ids": end_ids,
            "pad_id": pad_id,
            "max_rows": compute.sampling_rows,
            "decode": decode,
        }
        self._optimiser = PhasedAdamW(varying(self.student), optimisers)

    # --- looking -------------------------------------------------------------------------------------------------

    def numerics(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.low_precision else nullcontext()

    def hidden(self, weights: ViewWeights, batch: ViewBatch, *, grad: bool) -> Tensor:
        model: Any = self._model(weights)
        with torch.set_grad_enabled(grad and isinstance(weights, StudentWeights)), self.numerics():
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
        if isinstance(weights, StudentWeights):
            return self.student
        if weights not in self._models:
            raise ValueError(f"this learner was built without the weights {weights!r}")
        if isinstance(weights, PhaseStartWeights) and not self._in_phase:
            return self.student  # where the next phase would begin
        return self._models[weights]

    # --- drawing -------------------------------------------------------------------------------------------------

    def sampler(self, weights: ViewWeights = STUDENT) -> HFSampler:
        model = self._model(weights)
        if not self.low_precision:
            return HFSampler(model, **self._sampling)
        if isinstance(weights, FrozenWeights):
            return HFSampler(self._frozen_drawing(), **self._sampling)
        if model is self.student:
            weights = STUDENT
        if weights not in self._drawing:
            self._drawing[weights] = self._new_drawing(model)
        elif weights != STUDENT:
            assign(self._drawing[weights], model)
        return HFSampler(self._drawing[weights], **self._sampling)

    def synchronise(self) -> None:
        if STUDENT in self._drawing:
            assign(self._drawing[STUDENT], self.student)

    def _new_drawing(self, model: PreTrainedModel) -> PreTrainedModel:
        """A bf16 copy to draw from. The adapter stays beside the weights: merged, bf16 would round it away."""
        if self._adapter is None:
            return low_precision_copy(model)
        drawing = adapted(self._frozen_drawing(), self._adapter, seed=self._seed).requires_grad_(False)
        assign(drawing, model)
        return drawing

    def _frozen_drawing(self) -> PreTrainedModel:
        if self._adapter is None:
            return self._model(FrozenWeights())
        if self._low_base is None:
            self._low_base = low_precision_copy(self._base)
        return self._low_base

    # --- learning ------------------------------------------------------------------------------------------------

    def begin_phase(self) -> None:
        self._in_phase = True
        if PHASE_START in self._models:
            assign(self._models[PHASE_START], self.student)

    def step(self, phase: str, *, gradient_scale: float = 1.0) -> dict[str, float]:
        return self._optimiser.step(phase, gradient_scale)

    def advance(self, update: int) -> None:
        self._in_phase = False
        for weights, model in self._models.items():
            if isinstance(weights, EmaWeights):
                with torch.no_grad():
                    for slow, fast in zip(varying(model).values(), varying(self.student).values(), strict=True):
                        slow.lerp_(fast, weights.teacher_update_rate)
            elif isinstance(weights, SyncedWeights) and update % weights.every == 0:
                assign(model, self.student)

    # --- resuming ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensors]:
        return {
            "student": weights_of(self.student),
            "optimiser": self._optimiser.state(),
            **{file: weights_of(model) for file, model in self._saved().items()},
        }

    def load_state(self, state: Mapping[str, Tensors]) -> None:
        models = {"student": self.student, **self._saved()}
        expected = {"optimiser", *models}
        if set(state) != expected:
            raise ValueError(f"the checkpoint holds {sorted(state)}, this method needs {sorted(expected)}")
        for file, model in models.items():
            check_weights(model, state[file])
        self._optimiser.check(state["optimiser"])
        for file, model in models.items():
            load_weights(model, state[file])
        self._optimiser.load(state["optimiser"])
        self._in_phase = False
        self.synchronise()

    def load_views(self, state: Mapping[str, Tensors]) -> None:
        """Takes over a copy of the weights of ``state`` alone, to look and not to learn.

        Raises ValueError where one is missing or does not fit.
        """
        for file, model in {"student": self.student, **self._saved()}.items():
            if file not in state:
                raise ValueError(f"the checkpoint holds {sorted(state)} and lacks {file}")
            load_weights(model, state[file])
        self._in_phase = False
        self.synchronise()

    def _saved(self) -> dict[str, PreTrainedModel]:
        """File -> model of the weights that outlive an update and are not the start's."""
        return {name: model for weights, model in self._models.items() if (name := _file(weights)) is not None}


def half_life(rate: float) -> float:
    """Updates after which an average of this update rate holds half of what it held: ln ½ / ln(1 − rate)."""
    return 0.0 if rate == 1 else math.log(0.5) / math.log1p(-rate)


def _file(weights: ViewWeights) -> str | None:
    match weights:
        case EmaWeights(teacher_update_rate=rate):
            return f"average-{rate!r}"
        case SyncedWeights(every=every):
            return f"synced-{every}"
        case _:
            return None
