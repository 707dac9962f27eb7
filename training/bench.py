"""Time and memory of the distillation head: ``python -m training.bench [--json PATH] [--quick]``.

N response tokens, hidden size H, vocabulary V, student and teacher through one frozen head, forward KL. Paths:

products    the three bare matrix products (student, teacher, gradient of the input), in chunks: the floor
full        logits of all tokens at once, loss and gradient by autograd
chunked     ``training.objective``: gradient computed in the forward
checkpoint  chunks of plain autograd under activation checkpointing: the logits are computed twice

Every path of every size runs in a process of its own, so that its peak memory is its own. The ratios are the result:
seconds depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from training.losses.chunked import predicted_bytes
from training.method import Distill
from training.objective import TokenBatch, objective

MIB = 2**20
HeadPath = Callable[["Size", Tensor, Tensor, nn.Linear], tuple[float, Tensor]]
"""Returns the loss and its gradient with respect to the student's hidden states."""


@dataclass(frozen=True)
class Size:
    """One measurement: ``threads`` OpenMP threads, best of ``repeats``."""

    tokens: int
    hidden: int
    vocabulary: int
    chunk: int
    dtype: str
    threads: int
    repeats: int

    def label(self) -> str:
        threads = f"{self.threads} thread" + "s" * (self.threads != 1)
        return f"N={self.tokens} H={self.hidden} V={self.vocabulary} {self.dtype}, chunk {self.chunk}, {threads}"


def products(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> tuple[float, Tensor]:
    gradient = torch.empty_like(student)
    with torch.no_grad():
        for start in range(0, size.tokens, size.chunk):
            rows = slice(start, start + size.chunk)
            torch.mm(teacher[rows], head.weight.T)
            gradient[rows] = torch.mm(torch.mm(student[rows], head.weight.T), head.weight)
    return float("nan"), gradient


def _forward_kl(head: nn.Linear, student: Tensor, teacher: Tensor) -> Tensor:
    """Σ_t KL(teacher ‖ student) as one would write it first; also the reference the others are checked against."""
    with torch.no_grad():
        target = torch.log_softmax(head(teacher).float(), dim=-1)
    ours = torch.log_softmax(head(student).float(), dim=-1)
    return (target.exp() * (target - ours)).sum()


def full(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> tuple[float, Tensor]:
    loss = _forward_kl(head, student, teacher) / size.tokens
    (gradient,) = torch.autograd.grad(loss, student)
    return float(loss.detach()), gradient


def chunked(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> tuple[float, Tensor]:
    zeros = torch.zeros(size.tokens, dtype=torch.int64)
    batch = TokenBatch(ids=zeros, sequence=zeros, position=torch.arange(size.tokens), mask={})
    hidden = {"student": student, "teacher": teacher}
    heads: dict[str, nn.Module] = {"student": head, "teacher": head}
    result = objective({"distill": Distill()}, batch, hidden, heads, chunk_tokens=size.chunk)
    (gradient,) = torch.autograd.grad(result.loss, student)
    return float(result.loss.detach()), gradient


def checkpointed(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> tuple[float, Tensor]:
    total = torch.zeros(())
    for ours, theirs in zip(student.split(size.chunk), teacher.split(size.chunk), strict=True):
        part = checkpoint(_forward_kl, head, ours, theirs, use_reentrant=False)
        assert isinstance(part, Tensor)
        total = total + part
    (gradient,) = torch.autograd.grad(total / size.tokens, student)
    return float(total.detach()) / size.tokens, gradient


PATHS: dict[str, HeadPath] = {"products": products, "full": full, "chunked": chunked, "checkpoint": checkpointed}


# --- one measurement, in a process of its own ---------------------------------------------------------------------


def inputs(size: Size) -> tuple[Tensor, Tensor, nn.Linear]:
    """Hidden states of student and teacher, correlated, and a frozen head; logits have a deviation of about one."""
    torch.manual_seed(0)
    dtype = getattr(torch, size.dtype)
    head = nn.Linear(size.hidden, size.vocabulary, bias=False, dtype=dtype).requires_grad_(False)
    for rows in head.weight.split(8192):  # drawn in parts: a whole fp32 draw would leave a large heap behind
        rows.copy_(torch.randn(rows.shape) * size.hidden**-0.5)
    student = torch.randn(size.tokens, size.hidden)
    teacher = student + 0.5 * torch.randn(size.tokens, size.hidden)
    return student.to(dtype).requires_grad_(), teacher.to(dtype), head


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
    """Best wall and CPU seconds, bytes above the inputs at the peak, the loss, and a sample of the gradient."""
    torch.set_num_threads(size.threads)
    student, teacher, head = inputs(size)
    warm = Size(**{**asdict(size), "tokens": min(2, size.tokens)})
    PATHS[path](warm, student[:2].detach().requires_grad_(), teacher[:2], head)
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")  # the peak so far is that of making the inputs
    before = _status("VmRSS") or _peak_bytes()
    wall, cpu = [], []
    loss, gradient = float("nan"), torch.empty(0)
    for _ in range(size.repeats):
        started, used = time.perf_counter(), time.process_time()
        loss, gradient = PATHS[path](size, student, teacher, head)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return {
        "wall_seconds": min(wall),
        "cpu_seconds": min(cpu),
        "extra_bytes": max(0, _peak_bytes() - before),
        "loss": loss,
        "gradient": gradient[:: max(1, size.tokens // 8)].float().flatten().tolist(),
    }


def in_own_process(path: str, size: Size) -> dict[str, Any]:
    command = [sys.executable, "-m", "training.bench", "--measure", path, json.dumps(asdict(size))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


# --- the table ----------------------------------------------------------------------------------------------------


def rows(size: Size) -> list[dict[str, Any]]:
    """One row a path: seconds, memory, their ratios, and the relative distance of the gradient from that of ``full``.

    CPU seconds give the time ratio, because other load on the machine stretches wall seconds unevenly.
    """
    measured = {path: in_own_process(path, size) for path in PATHS}
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


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m training.bench", description="Time and memory of the head.")
    options.add_argument("--json", type=Path, help="also write the rows here")
    options.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options.add_argument("--tokens", type=int, nargs="+", default=[512, 1024])
    options.add_argument("--hidden", type=int, default=1024)
    options.add_argument("--vocabulary", type=int, default=151_936)
    options.add_argument("--chunk", type=int, default=128)
    options.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=2)
    options.add_argument("--measure", nargs=2, metavar=("PATH", "SIZE"), help=argparse.SUPPRESS)
    return options


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.measure is not None:
        path, size = given.measure
        print(json.dumps(measure(path, Size(**json.loads(size)))))
        return
    if given.quick:
        given.tokens, given.hidden, given.vocabulary, given.chunk = [128], 64, 8192, 16
    sizes = [
        Size(tokens, given.hidden, given.vocabulary, given.chunk, dtype, given.threads, given.repeats)
        for dtype in given.dtypes
        for tokens in given.tokens
    ]
    found = []
    for size in sizes:
        found += (measured := rows(size))
        Console().print(table(measured))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps({"machine": platform.platform(), "torch": torch.__version__, "rows": found}))


if __name__ == "__main__":
    main()
