"""One measurement in a process of its own, and the table of all of them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from training.bench.paths import PATHS, Size, paths_of
from training.losses.chunked import predicted_bytes

MIB = 2**20


def inputs(size: Size) -> tuple[Tensor, Tensor, nn.Linear, Tensor]:
    """Hidden states of student and teacher, correlated, a frozen head, and token ids.

    Logits have a deviation of about one.
    """
    torch.manual_seed(0)
    dtype = getattr(torch, size.dtype)
    head = nn.Linear(size.hidden, size.vocabulary, bias=False, dtype=dtype).requires_grad_(False)
    for rows in head.weight.split(8192):  # drawn in parts: a whole fp32 draw would leave a large heap behind
        rows.copy_(torch.randn(rows.shape) * size.hidden**-0.5)
    student = torch.randn(size.tokens, size.hidden)
    teacher = student + 0.5 * torch.randn(size.tokens, size.hidden)
    ids = torch.randint(size.vocabulary, (size.tokens,))
    return student.to(dtype).requires_grad_(), teacher.to(dtype), head, ids


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; 0 where there is no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(field))


def _peak_bytes() -> int:
    kernel = _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return kernel or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(path: str, size: Size) -> dict[str, Any]:
    """Best wall and CPU seconds, bytes above the inputs at the peak, the loss's value, a sample of the gradient."""
    torch.set_num_threads(size.threads)
    student, teacher, head, ids = inputs(size)
    warm = Size(**{**asdict(size), "tokens": min(2, size.tokens)})
    PATHS[path](warm, student[:2].detach().requires_grad_(), teacher[:2], head, ids[:2])
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")  # the peak so far is that of making the inputs
    before = _status("VmRSS") or _peak_bytes()
    wall, cpu = [], []
    loss, gradient = float("nan"), torch.empty(0)
    for _ in range(size.repeats):
        started, used = time.perf_counter(), time.process_time()
        loss, gradient = PATHS[path](size, student, teacher, head, ids)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return {
        "wall_seconds": min(wall),
        "cpu_seconds": min(cpu),
        "extra_bytes": max(0, _peak_bytes() - before),
        "value": loss,
        "gradient": gradient[:: max(1, size.tokens // 8)].float().flatten().tolist(),
    }


def in_own_process(path: str, size: Size) -> dict[str, Any]:
    command = [sys.executable, "-m", "training.bench", "--measure", path, json.dumps(asdict(size))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def rows(size: Size) -> list[dict[str, Any]]:
    """One row a path: seconds, memory, their ratios, and the relative distance of the gradient from that of ``full``.

    CPU seconds give the time ratio, because other load on the machine stretches wall seconds unevenly.
    """
    measured = {path: in_own_process(path, size) for path in paths_of(size.loss)}
    reference = torch.tensor(measured["full"]["gradient"])
    logit = 4 if size.dtype == "float32" else 2
    predicted = predicted_bytes(
        size.chunk, size.vocabulary, {"student": logit, "teacher": logit}, "student", torch.device("cpu")
    )
    found = []
    for path, result in measured.items():
        error = (torch.tensor(result.pop("gradient")) - reference).norm() / reference.norm()
        found.append(
            {
                "path": path,
                **asdict(size),
                **result,
                "time_over_products": result["cpu_seconds"] / measured["products"]["cpu_seconds"],
                "memory_over_full": result["extra_bytes"] / measured["full"]["extra_bytes"],
                "gradient_error": None if path == "products" else float(error),
                "predicted_bytes": predicted if path == "chunked" else None,
            }
        )
    return found


def table(found: list[dict[str, Any]]) -> Table:
    """The rows of one size."""
    size = Size(**{name: found[0][name] for name in Size.__dataclass_fields__})
    shown = Table("path", "wall s", "CPU s", "× products", "MiB", "/ full", "predicted", "gradient", title=size.label())
    for row in found:
        predicted, error = row["predicted_bytes"], row["gradient_error"]
        shown.add_row(
            row["path"],
            f"{row['wall_seconds']:.2f}",
            f"{row['cpu_seconds']:.2f}",
            f"{row['time_over_products']:.2f}",
            f"{row['extra_bytes'] / MIB:.0f}",
            f"{row['memory_over_full']:.2f}",
            "" if predicted is None else f"{predicted / MIB:.0f} MiB",
            "" if error is None else f"{error:.0e}",
        )
    return shown
