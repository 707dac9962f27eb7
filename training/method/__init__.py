"""A method is a value: one frozen spec of views, terms, phases and controllers (no torch here).

The loss of a phase is a sum of terms,

    L = Σ_k coefficient_k · reduce_k( weight_k · D_k(target_k, student) ),

and every ablation of a paper is ``override(method, path, value)``.
"""

from training.method.advantages import (
    Advantage,
    GroupAdvantage,
    GrsdModulation,
    Modulation,
    RlsdModulation,
    TeacherLogRatio,
)
from training.method.controllers import AlignmentController, Controller, UsdController
from training.method.method import Method
from training.method.overrides import OverrideError, override, override_all
from training.method.targets import (
    JSD,
    Divergence,
    ForwardKL,
    FullSupport,
    GeometricMix,
    Mix,
    Renyi,
    ReverseKL,
    Support,
    TopKSupport,
    TowardStudent,
)
from training.method.terms import (
    Alignment,
    AnyTerm,
    CrossEntropy,
    Distill,
    Entropy,
    PolicyGradient,
    Preference,
    Reduction,
    SampledKL,
    Term,
)
from training.method.training import Adapter, Batch, Optimiser, Overlong, Phase, Reward
from training.method.views import (
    EmaWeights,
    FrozenWeights,
    PhaseStartWeights,
    StudentWeights,
    SyncedWeights,
    View,
    Weights,
)
from training.method.weightings import (
    Gate,
    Importance,
    Position,
    TopTokens,
    Uniform,
    UsdHard,
    UsdSoft,
    Weighting,
)

__all__ = [
    "JSD",
    "Adapter",
    "Advantage",
    "Alignment",
    "AlignmentController",
    "AnyTerm",
    "Batch",
    "Controller",
    "CrossEntropy",
    "Distill",
    "Divergence",
    "EmaWeights",
    "Entropy",
    "ForwardKL",
    "FrozenWeights",
    "FullSupport",
    "Gate",
    "GeometricMix",
    "GroupAdvantage",
    "GrsdModulation",
    "Importance",
    "Method",
    "Mix",
    "Modulation",
    "Optimiser",
    "Overlong",
    "OverrideError",
    "Phase",
    "PhaseStartWeights",
    "PolicyGradient",
    "Position",
    "Preference",
    "Reduction",
    "Renyi",
    "ReverseKL",
    "Reward",
    "RlsdModulation",
    "SampledKL",
    "StudentWeights",
    "Support",
    "SyncedWeights",
    "TeacherLogRatio",
    "Term",
    "TopKSupport",
    "TopTokens",
    "TowardStudent",
    "Uniform",
    "UsdController",
    "UsdHard",
    "UsdSoft",
    "View",
    "Weighting",
    "Weights",
    "override",
    "override_all",
]  # fmt: skip
