"""The environment every Stillroom process runs in: quiet, offline, private. Set before prefect or ray is imported."""

from __future__ import annotations

import os
from pathlib import Path

OFFLINE_AND_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Failures are recorded with the run and told in one line; Prefect would print each traceback several times.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_CLI_PROMPT": "false",
    # The recorder's defaults lose task runs of short flows at exit.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    # Prefect cuts this to whole seconds; below 1 its loop spins and takes a core.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray starts workers at nice 15; beside anything else on the machine they would starve.
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    "VLLM_NO_USAGE_STATS": "1",
}


def prepare_environment(store: Path) -> None:
    """Set what is not set already; Prefect keeps its files inside the store."""
    for name, value in OFFLINE_AND_QUIET.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(store.resolve() / "prefect"))


def worker_environment(threads: int) -> dict[str, str]:
    """Environment of a Ray worker that computes with ``threads`` threads."""
    names = [*OFFLINE_AND_QUIET, "STILLROOM_BENCHMARKS"]
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
