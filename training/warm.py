"""Problems that stay in a worker process between the runs of one plan."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from training.sources import Sources, load_sources, sources_key
from training.spec import RunSpec

KEPT_SOURCES = 4

_SOURCES: OrderedDict[tuple[str, ...], Sources] = OrderedDict()


def warm_sources(spec: RunSpec, root: Path | None) -> Sources:
    """As load_sources, from memory where this process loaded the same from unchanged files before."""
    key = (sources_key(spec), str(root), *_stamps(spec))
    if key not in _SOURCES:
        _SOURCES[key] = load_sources(spec, root)
    _SOURCES.move_to_end(key)
    while len(_SOURCES) > KEPT_SOURCES:
        _SOURCES.popitem(last=False)
    return _SOURCES[key]


def _stamps(spec: RunSpec) -> list[str]:
    """Size and time of change of the user's own files."""
    data = spec.data
    names = [data.train, data.validation, data.test] if data else []
    files = [Path(name) for name in names if name is not None and Path(name).is_file()]
    return [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
