"""The address reproduces the view: both ways, for every page, and with values that are not there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.navigation import PAGES, url
from tests.dashboard.conftest import Open, go_to

VIEWS = {
    "overview": {"of": "demo", "status": "failed"},
    "leaderboard": {"plan": "demo", "split": "validation", "baseline": "SFT", "metric": "format_rate", "row": "GRPO"}
    | {"by": "rollout_tokens", "budget": "10000", "where": "seed<2"},
    "ablations": {
        "plan": "demo",
        "split": "validation",
        "baseline": "GRPO",
        "metric": "score",
        "rows": "cell",
        "columns": "benchmark",
        "place": "SFT × addition",
    },
    "curves": {
        "plan": "demo",
        "split": "validation",
        "x": "wall_seconds",
        "y": ["accuracy", "step:reward"],
        "methods": ["OPSD", "große Übung ½ “β”"],
        "seeds": "0",
    },
    "run": {"run": "demo-opsd-1", "show": "answers", "split": "validation", "update": "10", "verdict": "pass"},
    "sql": {"q": "SELECT '½ & = ?' AS text"},
}


@pytest.mark.parametrize("address", PAGES)
def test_a_link_reproduces_the_view(open_page: Open, store: Path, address: str) -> None:
    app = open_page(store, address, **VIEWS.get(address, {}))
    assert not app.exception and not app.warning
    assert {key: app.query_params[key] for key in VIEWS.get(address, {})} == VIEWS.get(address, {})
    again = open_page(store, address, **app.query_params)
    assert again.query_params == app.query_params
    assert [e.value.to_csv() for e in again.dataframe] == [e.value.to_csv() for e in app.dataframe]
    assert [e.value for e in again.caption] == [e.value for e in app.caption]


@pytest.mark.parametrize("address", PAGES)
def test_defaults_are_in_the_address_too(open_page: Open, store: Path, address: str) -> None:
    app = open_page(store, address)
    shown = {box.key.removeprefix("choice ") for box in app.selectbox if box.key and box.key.startswith("choice ")}
    assert shown | {"live"} <= set(app.query_params)


def test_a_widget_changes_the_address(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo")
    app.selectbox(key="choice baseline").select("GRPO").run()
    assert app.query_params["baseline"] == "GRPO"
    app.selectbox(key="choice plan").select("two-seeds").run()
    assert app.query_params["plan"] == "two-seeds"
    app.run()
    assert app.selectbox(key="choice plan").value == "two-seeds"


def test_another_address_in_the_same_session_wins(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", baseline="SFT")
    app.selectbox(key="choice baseline").select("GRPO").run()
    app.query_params["baseline"] = "OPSD"  # the browser's Back, or a link clicked within the page
    app.run()
    assert app.selectbox(key="choice baseline").value == "OPSD"


def test_choices_are_kept_from_page_to_page(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", split="validation")
    app.query_params.clear()  # the menu's links carry nothing
    go_to(app, "curves").run()
    assert (app.query_params["plan"], app.query_params["split"]) == ("demo", "validation")
    app.query_params.clear()
    go_to(app, "leaderboard").run()
    assert app.selectbox(key="choice split").value == "validation"


@pytest.mark.parametrize(
    ("address", "parameters", "says"),
    [
        ("leaderboard", {"plan": "gone"}, "plan “gone”"),
        ("curves", {"plan": "demo", "methods": ["OPSD", "gone"]}, "methods “gone”"),
        ("run", {"run": "gone"}, "run “gone”"),
    ],
)
def test_a_link_to_what_is_not_there_says_so(
    open_page: Open, store: Path, address: str, parameters: dict, says: str
) -> None:
    app = open_page(store, address, **parameters)
    assert not app.exception
    (warning,) = [element.value for element in app.warning]
    assert says in warning and "not here" in warning
    app.run()
    assert not app.warning  # said once; the address now names what is shown


def test_a_choice_that_ends_with_its_plan_falls_back_silently(open_page: Open, store: Path) -> None:
    app = open_page(store, "leaderboard", plan="demo", baseline="große Übung ½ “β”")
    app.selectbox(key="choice plan").select("two-seeds").run()
    assert app.selectbox(key="choice baseline").value == "Base" and not app.warning


def test_no_method_picked_is_a_view_of_its_own(open_page: Open, store: Path) -> None:
    app = open_page(store, "curves", plan="demo", methods="")
    assert app.multiselect(key="choice methods").value == []


def test_following_new_results_can_be_switched_off(open_page: Open, store: Path) -> None:
    app = open_page(store, "overview", live="0")
    assert app.toggle(key="choice live").value is False
    app.toggle(key="choice live").set_value(True).run()
    assert app.query_params["live"] == "1"


def test_addresses_in_tables_are_encoded() -> None:
    made = url("run", run="a b&c", split="½")
    assert urlsplit(made).path == "run"
    assert parse_qs(urlsplit(made).query) == {"run": ["a b&c"], "split": ["½"]}
