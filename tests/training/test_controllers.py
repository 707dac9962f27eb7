from __future__ import annotations

import pytest

from tests.training.small import addition_problems, small_method, small_trainer
from training.controllers import Controllers, Observed, initial, moved
from training.method import AlignmentController, UsdController
from training.state import TrainingState
from training.update import run_update


def test_usd_moves_both_numbers_by_one_load() -> None:
    controller = UsdController(capacity=0.3, price_rate=0.1, share_rate=0.03, initial_share=0.8)

    # load 12/20 = 0.6: λ = 0 + 0.1·0.3, β = 0.8 − 0.03·0.3
    assert moved(controller, initial(controller), Observed({"distill": (12.0, 20.0)})) == pytest.approx(
        {"price": 0.03, "share": 0.791}
    )


def test_usd_stays_in_its_bounds() -> None:
    controller = UsdController(price_rate=10, share_rate=10)

    low = moved(controller, {"price": 0.1, "share": 0.9}, Observed({"distill": (0.0, 5.0)}))
    high = moved(controller, {"price": 0.1, "share": 0.9}, Observed({"distill": (50.0, 5.0)}))

    assert low == {"price": 0.0, "share": 1.0}
    assert high["share"] == 0.1 and high["price"] == pytest.approx(0.1 + 10 * 9.7)


def test_alignment_is_a_running_mean_of_distances() -> None:
    controller = AlignmentController(rate=0.25, initial_weight=1.0)

    found = moved(controller, {"weight": 1.0}, Observed(distances={"token_f1": [0.0, 0.5, 1.0, 0.1]}))

    assert found == pytest.approx({"weight": 0.75 + 0.25 * 0.4})


def test_an_update_without_anything_to_observe_moves_nothing() -> None:
    for controller in (UsdController(), AlignmentController()):
        assert moved(controller, initial(controller), Observed({"distill": (0.0, 0.0)})) == initial(controller)


def test_an_update_uses_the_numbers_from_before_it_and_records_them() -> None:
    method = small_method("usd")
    state = TrainingState.initial(method)
    trainer = small_trainer(method)

    first = run_update(trainer, 1, addition_problems(3), state)
    second = run_update(trainer, 2, addition_problems(3), state)

    load = first.metrics["load/distill"]
    assert load is not None
    assert first.metrics["controller/usd/share"] == 0.8 and first.metrics["controller/usd/price"] == 0.0
    assert second.metrics["controller/usd/price"] == pytest.approx(max(0.0, 0.1 * (load - 0.3)))
    assert second.metrics["controller/usd/share"] == pytest.approx(min(1.0, 0.8 + 0.03 * (0.3 - load)))


def test_a_load_is_observed_without_usd_weights_too() -> None:
    """The ablation that adapts the reveal and weighs all tokens alike."""
    method = small_method("usd", {"phases.student.terms.distill.weighting": "uniform"})
    state = TrainingState.initial(method)

    metrics = run_update(small_trainer(method), 1, addition_problems(3), state).metrics

    assert (metrics["load/distill"] or 0) > 0
    assert state.controllers.outputs()["usd"]["share"] != 0.8


def test_controllers_come_back_from_their_state() -> None:
    first, second = Controllers(small_method("usd")), Controllers(small_method("usd"))
    first.observe(Observed({"distill": (9.0, 10.0)}))
    second.load_state(first.state())

    assert second.outputs() == first.outputs() != Controllers(small_method("usd")).outputs()
