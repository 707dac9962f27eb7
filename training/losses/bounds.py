"""The bounds that keep losses finite. Nothing else in the losses is cut off."""

from __future__ import annotations

import math

LOG_RATIO_BOUND = 20.0
"""Largest |exponent| of a ratio of probabilities, e^20 ≈ 4.9e8: importance ratios π/π_old and π_old/π_sampler, and 1/w
in estimators of a KL. The code of SDPO and of Skill-SD bounds at the same value. Bounded tokens are counted in the
metrics ``…_bounded/<term>``, and where the bound caps the loss they have no gradient."""

SMALLEST_TAIL = -math.expm1(-1e-7)
"""Floor of the probability of a support's tail event: log Σ_top p is capped at −1e-7 (SDPO and LOPD code). At the
floor the tail has no gradient."""
