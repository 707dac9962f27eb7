"""What `streamlit run` executes: the frame around every page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import streamlit as st

from dashboard import choices, navigation, parts
from dashboard.escaping import plain
from dashboard.reading import Snapshot, Version, published_version, store_path
from evaluation.results.store import NoSnapshotError

# How often an open page asks whether a newer snapshot is there; results are published about as often.
REFRESH_SECONDS = 5
# A file of ours: for a named icon the browser would ask a server on the internet.
ICON = Path(__file__).with_name("icon.svg")


def frame() -> None:
    """Draw the chosen page, and below it the line that watches for newer results."""
    st.set_page_config(page_title="Stillroom", page_icon=str(ICON), layout="wide")
    page = st.navigation(navigation.pages(), position="top")
    store = store_path()
    version = published_version(store)
    with choices.address():
        if version is None:
            _nothing_yet(str(store), store.is_dir())
        else:
            _draw(page, store, version)
        _foot(str(store), version)


def _draw(page: st.Page, store: Path, version: Version) -> None:
    st.session_state[parts.SNAPSHOT] = Snapshot(store, version)
    try:
        page.run()
    except NoSnapshotError:
        _nothing_yet(str(store), store.is_dir())
    except duckdb.Error as error:
        _unreadable(str(store), error)


def _foot(store: str, version: Version | None) -> None:
    st.divider()
    left, right = st.columns([1, 4], vertical_alignment="center")
    live = choices.switch(
        "Follow new results",
        "live",
        default=True,
        help="Draw this page again when newer results are published.",
        container=left,
    )
    with right:
        # The interval belongs to the decorator, so it is applied here rather than above the function.
        st.fragment(_watch, run_every=REFRESH_SECONDS if live else None)(store, version)


def _watch(store: str, drawn: Version | None) -> None:
    """Draw the whole page again once the published snapshot is another than the one drawn."""
    now = published_version(store_path())
    if now != drawn:
        st.rerun()
    published = "none" if drawn is None else f"{datetime.fromtimestamp(drawn[1] / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    st.caption(f"Results: {published}. Store: `{Path(store).name}`", help=plain(store))


def _nothing_yet(store: str, exists: bool) -> None:
    st.title("No results yet")
    if exists:
        st.info(
            f"Nothing has been published in `{store}`.\n\n"
            "Run `stillroom demo` for a first study (minutes, on any machine). "
            "If runs are there already, `stillroom ingest` brings them here."
        )
    else:
        st.warning(
            f"There is no store at `{store}`.\n\n"
            "Run `stillroom demo`, which makes one, or start the dashboard with `--store FOLDER`."
        )
    st.caption("This page opens by itself when results are published.")


def _unreadable(store: str, error: duckdb.Error) -> None:
    first_line = str(error).splitlines()[0]
    st.title("The results cannot be read")
    st.error(
        f"The published snapshot in `{store}` is damaged, or another version of Stillroom made it.\n\n"
        "Nothing is lost: `stillroom ingest --rebuild` makes it anew from what the runs wrote."
    )
    st.code(f"{type(error).__name__}: {first_line}", language=None)


frame()
