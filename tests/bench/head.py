"""Time and memory of the distillation head: N tokens, hidden width H, vocabulary V, a frozen shared head.

Each path runs in a process of its own, because its peak memory is read from the process:

products   the three bare matrix products in chunks (student, teacher, gradient of the input): the floor
full       logits of all tokens at once, autograd
chunked    ``training.objective``, gradient computed in the forward
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from training.method import Distill
from training.objective import TokenBatch, objective

PATHS = ("products", "full", "chunked")
MIB = 2**20


@dataclass(frozen=True)
class Size:
    tokens: int
    hidden: int
    vocabulary: int
    chunk: int
    dtype: str
    repeats: int


ROUNDS = 2
"""The paths take turns this often, so that a load that comes and goes meets all of them; the best time counts."""
FULL_SIZES = tuple(Size(512, 1024, 151_936, 128, dtype, 2) for dtype in ("bfloat16", "float32"))
QUICK_SIZES = (Size(64, 64, 4096, 16, "float32", 2),)


def inputs(size: Size) -> tuple[Tensor, Tensor, nn.Linear]:
    """Hidden states of student and teacher, and the head; logits have a standard deviation of about one."""
    torch.manual_seed(0)
    dtype = getattr(torch, size.dtype)
    head = nn.Linear(size.hidden, size.vocabulary, bias=False, dtype=dtype).requires_grad_(False)
    nn.init.normal_(head.weight, std=size.hidden**-0.5)
    student = torch.randn(size.tokens, size.hidden, dtype=dtype).requires_grad_()
    return student, torch.randn(size.tokens, size.hidden, dtype=dtype), head


def products(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> Tensor:
    weight = head.weight
    with torch.no_grad():
        parts = []
        for ours, theirs in zip(student.split(size.chunk), teacher.split(size.chunk), strict=True):
            torch.mm(theirs, weight.T)
            parts.append(torch.mm(torch.mm(ours, weight.T), weight))
        return torch.cat(parts)


def full(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> Tensor:
    """Forward KL, mean over tokens, as one would write it first."""
    target = torch.log_softmax(head(teacher).float(), dim=-1)
    ours = torch.log_softmax(head(student).float(), dim=-1)
    loss = (target.exp() * (target - ours)).sum(dim=-1).mean()
    (gradient,) = torch.autograd.grad(loss, student)
    return gradient


def chunked(size: Size, student: Tensor, teacher: Tensor, head: nn.Linear) -> Tensor:
    zeros = torch.zeros(size.tokens, dtype=torch.int64)
    batch = TokenBatch(ids=zeros, sequence=zeros, position=torch.arange(size.tokens), mask={})
    result = objective(
        {"distill": Distill()},
        batch,
        {"student": student, "teacher": teacher},
        {"student": head, "teacher": head},
        chunk_tokens=size.chunk,
    )
    (gradient,) = torch.autograd.grad(result.loss, student)
    return gradient


def measure(path: str, size: Size) -> dict[str, Any]:
    """Best seconds of ``repeats`` runs, MiB above the inputs at the peak, and a few entries of the gradient."""
    run: Callable[..., Tensor] = {"products": products, "full": full, "chunked": chunked}[path]
    arguments = inputs(size)
    before = psutil.Process().memory_info().rss
    seconds, gradient = [], torch.empty(0)
    for _ in range(size.repeats):
        started = time.perf_counter()
        gradient = run(size, *arguments)
        seconds.append(time.perf_counter() - started)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    sample = gradient.float()[:: max(1, size.tokens // 8), :8]
    return {"seconds": min(seconds), "extra MiB": max(0, peak - before) / MIB, "gradient": sample.flatten().tolist()}


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row a size and path, with ratios to the bare products and to full logits."""
    found = []
    for size in QUICK_SIZES if quick else FULL_SIZES:
        measured = {path: _in_own_process(path, size) for path in PATHS}
        for path in PATHS * (ROUNDS - 1):
            seconds = _in_own_process(path, size)["seconds"]
            measured[path]["seconds"] = min(measured[path]["seconds"], seconds)
        reference = torch.tensor(measured["full"].pop("gradient"))
        difference = (torch.tensor(measured["chunked"].pop("gradient")) - reference).norm() / reference.norm()
        measured["products"].pop("gradient")
        for path in PATHS:
            found.append(
                {
                    "head": path,
                    "size": f"{size.tokens}x{size.hidden}x{size.vocabulary} {size.dtype}",
                    **measured[path],
                    "x products": measured[path]["seconds"] / measured["products"]["seconds"],
                    "memory / full": measured[path]["extra MiB"] / max(measured["full"]["extra MiB"], 1e-9),
                    "gradient error": float(difference) if path == "chunked" else None,
                }
            )
    return found


def _in_own_process(path: str, size: Size) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.head", path, json.dumps(asdict(size))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Size(**json.loads(sys.argv[2])))))
