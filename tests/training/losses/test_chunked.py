"""The chunked head against plain autograd, for every kind of head."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.losses.ragged import gradient_of, ragged
from training.losses.chunked import attach, predicted_bytes, run_head
from training.method import Distill, Renyi
from training.objective import TokenBatch, objective

VOCABULARY, WIDTH, TOKENS = 13, 6, 17


class LowRankHead(nn.Module):
    """A frozen weight with a trainable low-rank addition, as an adapter on the head makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(False)
        self.down = nn.Linear(WIDTH, 2, bias=False)
        self.up = nn.Linear(2, VOCABULARY, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.base(hidden) + self.up(self.down(hidden))


class CappedHead(nn.Module):
    """Logits squashed by tanh, whose backward needs the logits themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, hidden: Tensor) -> Tensor:
        return 3 * torch.tanh(self.linear(hidden) / 3)


def head_of(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "low_rank":
        return LowRankHead().double()
    if kind == "capped":
        return CappedHead().double()
    return nn.Linear(WIDTH, VOCABULARY, bias=kind == "bias").double().requires_grad_(kind != "frozen")


def plain_kl(logits: Tensor, target: Tensor) -> Tensor:
    p, q = torch.softmax(target, -1), torch.softmax(logits, -1)
    return (p * torch.log(p / q)).sum(-1).mean()


@pytest.mark.parametrize("kind", ["linear", "bias", "frozen", "low_rank", "capped"])
@pytest.mark.parametrize("chunk_tokens", [1, 4, 100])
def test_gradients_equal_plain_autograd(kind: str, chunk_tokens: int) -> None:
    head, teacher_head = head_of(kind), head_of("linear")
    generator = torch.Generator().manual_seed(1)
    hidden, teacher = torch.randn(2, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    hidden.requires_grad_()
    sequence = torch.zeros(TOKENS, dtype=torch.long)
    batch = TokenBatch(sequence, sequence, torch.arange(TOKENS), {})
    trainable = [p for p in head.parameters() if p.requires_grad]
    expected = torch.autograd.grad(plain_kl(head(hidden), teacher_head(teacher).detach()), [hidden, *trainable])
    result = objective(
        {"d": Distill()},
        batch,
        {"student": hidden, "teacher": teacher},
        {"student": head, "teacher": teacher_head},
        chunk_tokens=chunk_tokens,
    )
    (2.5 * result.loss + hidden.sum()).backward()
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad, 2.5 * expected[0] + 1, rtol=1e-10, atol=1e-13)
    for parameter, gradient in zip(trainable, expected[1:], strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 2.5 * gradient, rtol=1e-10, atol=1e-13)
    assert all(p.grad is None for p in head.parameters() if not p.requires_grad)
    assert all(p.grad is None for p in teacher_head.parameters())


def test_tied_embedding_collects_both_gradients() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(VOCABULARY, WIDTH).double()
    head = nn.Linear(WIDTH, VOCABULARY, bias=False).double()
    head.weight = embedding.weight
    ids = torch.randint(VOCABULARY, (TOKENS,))
    target = torch.randn(TOKENS, VOCABULARY, dtype=torch.float64)
    (expected,) = torch.autograd.grad(plain_kl(torch.tanh(embedding(ids)) @ head.weight.T, target), [embedding.weight])
    batch = TokenBatch(ids, torch.zeros_like(ids), torch.arange(TOKENS), {})
    hidden = {"student": torch.tanh(embedding(ids)), "teacher": target}
    heads: dict[str, nn.Module] = {"student": head, "teacher": nn.Identity()}
    objective({"d": Distill()}, batch, hidden, heads, chunk_tokens=4).loss.backward()
    assert embedding.weight.grad is not None
    torch.testing.assert_close(embedding.weight.grad, expected, rtol=1e-10, atol=1e-13)


def test_a_live_teacher_sends_nothing_to_the_shared_head() -> None:
    """The teacher looks through the very head that learns; only the student's pass may move it."""
    data = ragged(seed=9)
    teacher = torch.randn_like(data.student).requires_grad_()

    def weight_gradient(teacher_head: nn.Module) -> Tensor:
        hidden = {"student": data.student, "teacher": teacher}
        heads = {"student": data.head, "teacher": teacher_head}
        objective({"masked": Distill()}, data.batch, hidden, heads, chunk_tokens=3).loss.backward()
        return gradient_of(data.head.weight)

    separate = nn.Linear(data.head.in_features, data.head.out_features, bias=False)
    separate.weight = nn.Parameter(data.head.weight.detach().clone())
    assert torch.equal(weight_gradient(data.head), weight_gradient(separate))
    assert teacher.grad is None


def test_backward_twice_accumulates() -> None:
    data = ragged(seed=3)
    loss = data.run({"masked": Distill()}).loss
    loss.backward(retain_graph=True)
    once = gradient_of(data.student)
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(gradient_of(data.student), 2 * once)


def test_without_autograd_the_value_is_the_same_and_has_no_graph() -> None:
    data = ragged(seed=3)
    with torch.no_grad():
        silent = data.run({"masked": Distill()})
    assert not silent.loss.requires_grad
    assert silent.loss.item() == data.run({"masked": Distill()}).loss.item()


def test_frozen_head_and_hidden_states_without_gradient() -> None:
    data = ragged(seed=3)
    data.student = data.student.detach()
    data.head.requires_grad_(False)
    assert not data.run({"masked": Distill()}).loss.requires_grad
    data.head.requires_grad_(True)
    data.run({"masked": Distill()}).loss.backward()
    assert data.head.weight.grad is not None and data.head.weight.grad.abs().sum() > 0


def test_bf16_head_weight_gradient_is_summed_in_fp32() -> None:
    """512 one-token chunks: summed in bf16, small contributions would be lost against the running total."""
    torch.manual_seed(0)
    head = nn.Linear(4, 8, bias=False, dtype=torch.bfloat16)
    hidden = torch.ones(512, 4, dtype=torch.bfloat16, requires_grad=True)

    def constant_slope(start: int, logits: object, wanted: bool) -> Tensor:
        return torch.full((1, 8), 1 / 256)

    gradients = run_head({"student": hidden}, {"student": head}, "student", constant_slope, 1)
    assert gradients.parameters[0].dtype == torch.float32
    assert torch.equal(gradients.parameters[0], torch.full((8, 4), 2.0))
    attach(torch.tensor(0.0), gradients, hidden).backward()
    assert head.weight.grad is not None and head.weight.grad.dtype == torch.bfloat16


def test_autocast_reaches_the_head_and_not_the_losses() -> None:
    data = ragged(seed=5, dtype=torch.float32)

    class Rounded(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, hidden: Tensor) -> Tensor:
            return hidden.bfloat16() @ self.linear.weight.bfloat16().T

    hidden = {"student": data.student, "teacher": data.teacher}
    rounded: dict[str, nn.Module] = {"student": Rounded(data.head), "teacher": Rounded(data.teacher_head)}
    keep = frozenset({"divergence/masked", "entropy/student"})
    terms = {"masked": Distill(divergence=Renyi(order=0.95))}
    explicit = objective(terms, data.batch, hidden, rounded, chunk_tokens=5, keep=keep)
    explicit.loss.backward()
    expected, expected_weight = gradient_of(data.student), gradient_of(data.head.weight)
    with torch.autocast("cpu", torch.bfloat16):
        result = data.run(terms, keep=keep)
    result.loss.backward()
    for name in keep:
        torch.testing.assert_close(
            result.token_values[name], explicit.token_values[name], rtol=0, atol=0, equal_nan=True
        )
    torch.testing.assert_close(data.student.grad, expected, rtol=0, atol=0)
    # Autocast hands the weight's gradient over in bf16, once a chunk.
    torch.testing.assert_close(data.head.weight.grad, expected_weight, rtol=1e-2, atol=1e-4)


REPEATS = 3
"""Of several measurements the smallest counts."""

MEASURE = """
import sys, torch
from training.losses.chunked import predicted_bytes
from training.method import Distill
from training.objective import TokenBatch, objective
torch.set_num_threads(1)
most, chunk, vocabulary, width = max(map(int, sys.argv[1:])), 128, 60_000, 8
def peak():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
def resident():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmRSS"))
torch.manual_seed(0)
head = torch.nn.Linear(width, vocabulary, bias=False).requires_grad_(False)
hidden, teacher = torch.randn(most, width, requires_grad=True), torch.randn(most, width)
zeros = torch.zeros(most, dtype=torch.long)
def run(n):
    part = TokenBatch(zeros[:n], zeros[:n], torch.arange(n), {})
    views = {"student": hidden[:n], "teacher": teacher[:n]}
    objective({"d": Distill()}, part, views, {"student": head, "teacher": head}, chunk_tokens=chunk).loss.backward()
run(2)
sizes = {"student": 4, "teacher": 4}
print(predicted_bytes(chunk, vocabulary, sizes, "student", torch.device("cpu")))
for tokens in map(int, sys.argv[1:]):
    before = resident()
    open("/proc/self/clear_refs", "w").write("5")
    run(tokens)
    print(peak() - before)
"""


def measured_and_predicted(*tokens: int) -> tuple[list[int], int]:
    """Peak bytes of a loss over each number of tokens, and the prediction, which is one for all."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", MEASURE, *map(str, tokens * REPEATS)]
    # What is freed is given back at once, so that the peak is of what lives; what else the process does only adds.
    quiet = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200, cwd=root, env=quiet)
    predicted, *peaks = map(int, done.stdout.split())
    return [min(peaks[place :: len(tokens)]) for place in range(len(tokens))], predicted


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads peak memory from /proc")
def test_memory_is_predicted_and_does_not_grow_with_the_tokens() -> None:
    (few, many), predicted = measured_and_predicted(256, 640)
    assert abs(many - few) < 0.1 * few
    assert abs(few - predicted) < 0.25 * predicted
    # One fp32 logits tensor of the 640 tokens alone would take 154 MB, and autograd keeps about six.
    assert many < 640 * 60_000 * 4


def test_predicted_bytes_by_hand() -> None:
    # 3 tensors of 100 rows · 1,000 ids · 4 bytes, and 10 temporaries of one block (here the whole chunk).
    size = predicted_bytes(100, 1000, {"student": 4, "teacher": 4}, "student", torch.device("cpu"))
    assert size == 3 * 400_000 + 10 * 400_000
    # A third view adds its logits and four temporaries.
    views = {"student": 4, "teacher": 4, "reference": 4}
    assert predicted_bytes(100, 1000, views, "student", torch.device("cpu")) == 4 * 400_000 + 14 * 400_000
