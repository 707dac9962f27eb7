"""Values between the two interpreters, as JSON: plain ones by content, all others by a handle."""

from __future__ import annotations

import builtins
import sys
import types
from collections import Counter, OrderedDict, deque, namedtuple

TYPE_CHECKING = False  # the module typing would take a third of the time of a run
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TEXT = 400
"""Longest text of a value or an error in a report."""

_MAPPINGS: dict[str, Any] = {"Counter": Counter, "OrderedDict": OrderedDict, "dict": dict}
_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda parts: complex(*parts),
    "range": lambda parts: range(*parts),
    "decimal.Decimal": lambda text: __import__("decimal").Decimal(text),
    "fractions.Fraction": lambda text: __import__("fractions").Fraction(text),
}


class CannotCrossError(Exception):
    """A value that the tests pass cannot be sent to the answer's interpreter."""


def encode(value: Any, handle: Callable[[Any], Any]) -> Any:
    """``value`` as JSON; of what is not plain, ``handle(value)``. A subclass counts as the plain type it is made of."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        items = [encode(item, handle) for item in tuple.__iter__(value)]
        return {"namedtuple": [kind.__name__, list(kind._fields), items]}
    for name, base in _CONTAINERS.items():
        if isinstance(value, base):
            return {name: [encode(item, handle) for item in base.__iter__(value)]}
    for name, base in _MAPPINGS.items():
        if isinstance(value, base):
            return {name: [[encode(key, handle), encode(item, handle)] for key, item in dict.items(value)]}
    return _encode_rarer(value, kind, handle)


def _encode_rarer(value: Any, kind: type, handle: Callable[[Any], Any]) -> Any:
    if isinstance(value, bytes):
        return {"bytes": bytes.hex(value)}
    if isinstance(value, bytearray):
        return {"bytearray": bytearray.hex(value)}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [value.start, value.stop, value.step]}
    for module, name in (("decimal", "Decimal"), ("fractions", "Fraction")):
        if module in sys.modules and kind is getattr(sys.modules[module], name):
            return {f"{module}.{name}": str(value)}
    if kind in (type, types.BuiltinFunctionType) and getattr(builtins, value.__name__, None) is value:
        return {"builtin": value.__name__}
    return handle(value)


def decode(coded: Any, handle: Callable[[Any], Any], *, functions: bool) -> Any:
    """The value of ``encode``; ``handle`` makes one of a handle's number.

    ``functions``: whether builtin functions are accepted, and not only builtin types. Raises ValueError for what
    ``encode`` does not make.
    """
    if not isinstance(coded, dict):
        if isinstance(coded, list):
            raise ValueError("no such value")
        return coded
    name, content = next(iter(coded.items()))
    if name in _CONTAINERS:
        return _CONTAINERS[name](decode(item, handle, functions=functions) for item in content)
    if name in _MAPPINGS:
        pairs = [[decode(part, handle, functions=functions) for part in pair] for pair in content]
        return _MAPPINGS[name](dict(pairs))
    if name == "namedtuple":
        return namedtuple(content[0], content[1])(*(decode(item, handle, functions=functions) for item in content[2]))
    if name == "handle":
        return handle(content)
    if name == "builtin":
        value = getattr(builtins, content)
        if functions or isinstance(value, type):
            return value
    if name not in _PLAIN:
        raise ValueError("no such value")
    return _PLAIN[name](content)


def short(text: str) -> str:
    return text if len(text) <= TEXT else text[:TEXT] + "..."
