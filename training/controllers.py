"""The controllers of a method at work: numbers that move once after every update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.credit.alignment import Similarity
from training.method import AlignmentController, Controller, Method, UsdController

Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Observed:
    """What one update tells its controllers."""

    loads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Term -> (Σ w_t·d_t, tokens that take part)."""
    distances: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Similarity -> 1 − similarity of each rollout and its reference."""


def initial(controller: Controller) -> Values:
    """The outputs before the first update."""
    if isinstance(controller, UsdController):
        return {"price": controller.initial_price, "share": controller.initial_share}
    return {"weight": controller.initial_weight}


def moved(controller: Controller, values: Mapping[str, float], observed: Observed) -> Values:
    """The outputs after one update; unchanged where the update had nothing to observe.

    USD: λ ← max(0, λ + η_λ·(load − ε)), then β ← clip(β + η_β·(ε − load), β_min, 1), both from one load.
    """
    if isinstance(controller, AlignmentController):
        distances = observed.distances.get(controller.similarity, ())
        if not distances:
            return dict(values)
        mean = sum(distances) / len(distances)
        return {"weight": (1 - controller.rate) * values["weight"] + controller.rate * mean}
    weighted, tokens = observed.loads.get(controller.term, (0.0, 0.0))
    if tokens == 0:
        return dict(values)
    load = weighted / tokens
    price = max(0.0, values["price"] + controller.price_rate * (load - controller.capacity))
    share = values["share"] + controller.share_rate * (controller.capacity - load)
    return {"price": price, "share": min(1.0, max(controller.min_share, share))}


class Controllers:
    """The outputs of all controllers of a method, as of now."""

    def __init__(self, method: Method) -> None:
        self._specs = method.controllers
        self._values = {name: initial(controller) for name, controller in self._specs.items()}

    def outputs(self) -> dict[str, Values]:
        """Controller name -> output name -> number, as ``Method.at`` takes them."""
        return {name: dict(values) for name, values in self._values.items()}

    def observe(self, observed: Observed) -> None:
        for name, controller in self._specs.items():
            self._values[name] = moved(controller, self._values[name], observed)

    def metrics(self) -> dict[str, float | None]:
        """``controller/<name>/<output>``."""
        return {
            f"controller/{name}/{output}": value
            for name, values in self._values.items()
            for output, value in values.items()
        }

    def similarities(self) -> set[Similarity]:
        """The similarities that some controller observes."""
        return {spec.similarity for spec in self._specs.values() if isinstance(spec, AlignmentController)}

    def terms(self) -> frozenset[str]:
        """The terms whose load some controller observes."""
        return frozenset(spec.term for spec in self._specs.values() if isinstance(spec, UsdController))

    def state(self) -> dict[str, Any]:
        return self.outputs()

    def load_state(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Raises ValueError where the state is of other controllers."""
        if {name: set(values) for name, values in state.items()} != {n: set(v) for n, v in self._values.items()}:
            raise ValueError(f"the state holds controllers {sorted(state)}, this method has {sorted(self._values)}")
        self._values = {name: dict(values) for name, values in state.items()}
