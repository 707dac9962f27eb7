"""Commands about the results and the machine: ingest, dashboard, doctor."""

from __future__ import annotations

from flows.cli.app import Json, Store, app, console, print_content
from flows.settings import read_settings


@app.command
def ingest(*, rebuild: bool = False, json: Json = False, store: Store = None) -> int:
    """Bring the results up to date with the runs' spools.

    Parameters
    ----------
    rebuild
        Make the database anew from all spools.
    """
    from flows.report import print_ingest

    print_ingest(read_settings(store).store, rebuild, json, console)
    return 0


@app.command
def dashboard(*, port: int = 8501, open_browser: bool = False, store: Store = None) -> int:
    """Show the results in the browser, on this machine only."""
    from dashboard.serve import serve
    from flows.environment import prepare_environment

    settings = read_settings(store)
    prepare_environment(settings.store)
    return serve(settings.store, port, open_browser)


@app.command
def doctor(*, quick: bool = False, json: Json = False, store: Store = None) -> int:
    """Check this machine: versions, devices, sandbox, Ray, Prefect, store.

    Parameters
    ----------
    quick
        Leave out what starts processes (Ray, Prefect, the sandbox).
    """
    from flows.doctor import diagnose
    from flows.environment import prepare_environment
    from flows.report import checks_rows, print_checks

    settings = read_settings(store)
    prepare_environment(settings.store)
    checks = diagnose(settings.store, deep=not quick)
    if json:
        print_content(checks_rows(checks), True)
    else:
        print_checks(checks, console)
    return 1 if any(check.ok is False for check in checks) else 0
