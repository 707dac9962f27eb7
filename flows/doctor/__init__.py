"""What can be wrong with a machine or a store before anything is run, each with the line that mends it.

machine    versions, cores, memory, disk, devices, folders, optional programs
services   really start what a study starts: Ray, Prefect's server, the sandbox, the browser
results    the store: database, snapshot, lock, lines that were refused, runs that stopped half-way
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flows.doctor.check import Check

__all__ = ["Check", "diagnose"]


def diagnose(store: Path, *, deep: bool) -> list[Check]:
    """Every check of this machine and of ``store``; nothing is changed, an absent store stays absent.

    ``deep`` also starts processes (Ray, Prefect's server, a sandboxed program, the browser), which takes up to a
    minute. Only a check whose ``ok`` is False stands in the way of a study.
    """
    from flows.doctor import machine, results, services
    from flows.settings import read_settings

    settings = read_settings(store)
    checks = [
        machine.python(),
        machine.packages(),
        machine.processor(),
        machine.memory(),
        machine.disk(settings.store),
        machine.torch_build(),
        machine.folder("cache folder", settings.cache, "STILLROOM_CACHE"),
        machine.folder("store folder", settings.store, "STILLROOM_STORE"),
        machine.benchmark_files(settings.benchmarks),
        machine.real_model(),
        results.database(settings.store),
        results.quarantine(settings.store),
        results.runs(settings.store),
        services.browser(start=deep),
    ]
    if deep:
        probes = (services.ray_cluster, services.prefect_api, services.sandbox)
        with ThreadPoolExecutor(len(probes)) as pool:
            checks += pool.map(lambda probe: probe(), probes)
    return checks
