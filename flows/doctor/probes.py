"""``python -m flows.doctor.probes ray|prefect``: what the doctor starts in a process of its own."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import urllib.request
from pathlib import Path


def ray_probe(folder: Path) -> str:
    """Ray up, one task in another process, Ray down."""
    import ray

    started = time.monotonic()
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(folder),
    )
    up = time.monotonic() - started
    worker = ray.get(ray.remote(max_retries=0)(lambda: os.getpid()).remote(), timeout=60)
    ray.shutdown()
    if worker == os.getpid():
        raise RuntimeError("the task ran in the driver instead of a worker process")
    return f"started in {up:.1f} s, ran a task in another process, stopped"


def prefect_probe(folder: Path) -> str:
    """The server up (or the given one reached), and asked for its version."""
    from flows.server import prefect_server

    given = "PREFECT_API_URL" in os.environ
    started = time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with prefect_server(folder / "server.log") as url:
        with opener.open(f"{url}/admin/version", timeout=10) as response:
            version = json.load(response)
        up = time.monotonic() - started
    return f"server {version} answers at {url}" if given else f"server {version} started in {up:.1f} s, stopped"


def main() -> None:
    """Prints one line; errors go to stderr and the exit code."""
    probe = {"ray": ray_probe, "prefect": prefect_probe}[sys.argv[1]]
    print(probe(Path(os.environ["STILLROOM_PROBE_FOLDER"])))


if __name__ == "__main__":
    main()
