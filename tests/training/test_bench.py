"""The bench of the head measures paths that agree, and writes what it prints. Its times are not judged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.bench.__main__ import main
from training.bench.losses import LOSSES
from training.bench.measure import inputs, table
from training.bench.paths import PATHS, Size, paths_of

SMALL = Size(tokens=24, hidden=16, vocabulary=300, chunk=8, dtype="float32", threads=1, repeats=1)


@pytest.mark.parametrize("name", LOSSES)
def test_all_paths_compute_the_same_loss_and_gradient(name: str) -> None:
    size = replace(SMALL, loss=name)
    loss, gradient = PATHS["full"](size, *inputs(size))
    assert abs(loss) > 0 and gradient.norm() > 0
    others = [path for path in paths_of(name) if path not in ("products", "full")]
    assert others[:2] == ["chunked", "checkpoint"]
    for path in others:
        other_loss, other_gradient = PATHS[path](size, *inputs(size))
        # Written plainly in fp32, the Rényi divergence near order 1 keeps four digits.
        assert abs(other_loss - loss) <= (5e-5 if name == "renyi" else 1e-5) * (1 + abs(loss))
        torch.testing.assert_close(other_gradient, gradient, rtol=1e-4, atol=1e-6)


def test_products_are_the_bare_products() -> None:
    floor_loss, products = PATHS["products"](SMALL, *inputs(SMALL))
    student, _, head, _ = inputs(SMALL)
    assert math.isnan(floor_loss)
    torch.testing.assert_close(products, (student @ head.weight.T @ head.weight).detach())


@pytest.mark.slow
def test_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "head.json"
    small = ["--tokens", "64", "--hidden", "32", "--vocabulary", "4000", "--chunk", "16", "--losses", "forward_kl"]
    main([*small, "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [(row["dtype"], row["path"]) for row in rows] == [
        (d, p) for d in ("float32", "bfloat16") for p in paths_of("forward_kl")
    ]
    assert {row["loss"] for row in rows} == {"forward_kl"}
    for row in rows:
        assert math.isnan(row["value"]) == (row["path"] == "products")
        assert row["cpu_seconds"] > 0 and row["extra_bytes"] >= 0
        if row["path"] == "chunked":
            assert row["gradient_error"] < (1e-5 if row["dtype"] == "float32" else 1e-2)
    printed = capfd.readouterr().out
    assert "chunked" in printed and "forward_kl: N=64" in printed
    assert table(rows[:3]).row_count == 3
