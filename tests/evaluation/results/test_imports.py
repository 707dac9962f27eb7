"""Reading results must stay light: no module of it loads a heavy library, nor any of ours outside evaluation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

CODE = """
import importlib, pkgutil, sys
import evaluation.results, evaluation.statistics
for module in pkgutil.iter_modules(evaluation.results.__path__):
    importlib.import_module(f"evaluation.results.{module.name}")
heavy = {"torch", "ray", "prefect", "transformers", "streamlit", "scipy", "pandas", "rich"}
ours = {"training", "flows", "dashboard"}
print(sorted((heavy | ours) & {name.partition(".")[0] for name in sys.modules}))
"""


def test_results_and_statistics_load_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_statistics_needs_numpy_alone() -> None:
    code = "import sys, evaluation.statistics; print('duckdb' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
