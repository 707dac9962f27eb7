"""The references stay references: none of their files names the product."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from training.methods import METHODS

FILES = sorted((Path(__file__).parent / "reference").glob("*.py"))
PRODUCT = {"training", "evaluation", "flows", "dashboard"}


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} has a relative import"
            found.add(node.module or "")
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in ("import_module", "__import__"), f"{file.name} imports by name"
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_reference_imports_nothing_of_the_product(file: Path) -> None:
    names = _imports(file)
    assert not {name for name in names if name.split(".")[0] in PRODUCT}
    own = {name for name in names if name.split(".")[0] == "tests"}
    assert all(name.startswith("tests.training.methods.reference") for name in own)


def test_there_are_references() -> None:
    assert len(FILES) > 10


@pytest.mark.parametrize("key", [*METHODS])
def test_every_method_is_held_against_a_reference(key: str) -> None:
    tests = Path(__file__).parent.glob("test_*_reference.py")
    assert any(f'"{key}"' in file.read_text(encoding="utf-8") for file in tests)
