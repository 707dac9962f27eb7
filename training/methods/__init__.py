"""Every method by its key, and the presets that fit it to other scales (values only, no torch).

A preset changes optimiser values, batch, lengths and sampling; the algorithm stays the paper's.
"""

from __future__ import annotations

from typing import Any

from training.method import Method
from training.methods import grpo, opsd, sft

METHODS: dict[str, Method] = {method.key: method for method in (sft.SFT, grpo.GRPO, opsd.OPSD, opsd.OPSD_V1)}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {**sft.PRESETS, **grpo.PRESETS, **opsd.PRESETS}
"""``PRESETS[method][preset]``: dotted paths into the method and their values, for ``override_all``."""
