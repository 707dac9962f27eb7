"""The terms of an objective. Gradient reaches the view ``of`` and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from evaluation.spec import KindShorthand, Spec
from training.method.advantages import Advantage, GroupAdvantage, Modulation, TeacherLogRatio
from training.method.targets import Divergence, ForwardKL, FullSupport, GeometricMix, Mix, Renyi, Support
from training.method.weightings import Gate, Importance, Uniform, Weighting
from training.schedules import Dynamic, NonNegative

Reduction = Annotated[
    Literal["token_mean", "sequence_mean", "constant"],
    Field(
        description="token_mean: Σ over the global batch / its weight; sequence_mean: mean over sequences of "
        "per-sequence means; constant: Σ / (sequences · max_new_tokens)."
    ),
]
Normalise = Annotated[
    Literal["weights", "tokens"],
    Field(
        description="What a reduction counts: Σ of the tokens' weights (gates included), or all tokens that take part "
        "in the term."
    ),
]
Temperature = Annotated[
    Annotated[float, Field(gt=0)] | Literal["sampling"],
    Field(description='What logits are divided by; "sampling" follows ``sampling.temperature``.'),
]
Coefficient = Annotated[NonNegative, Field(description="The term's factor in the sum of the phase.")]
_Rollouts = Annotated[Literal["rollouts"], Field(description="The term learns from rollouts.")]


class Distill(Spec):
    """Σ_t w_t · D(target_t, student_t) on the response's own tokens."""

    kind: Literal["distill"] = "distill"
    of: str = "student"
    """Name of the view that learns."""
    against: str = "teacher"
    """Name of the view that is the target; no gradient reaches it."""
    mix: Mix | None = None
    """What the target is mixed with before the divergence."""
    divergence: Divergence = ForwardKL()
    """How far the student is from the target."""
    support: Support = FullSupport()
    """The ids it is taken on."""
    entry_clip: float | None = Field(None, gt=0)
    """Upper clip of each event's summand before the sum, the tail included (OPSD v3: 0.05); refused with Rényi."""
    token_clip: float | None = Field(None, gt=0)
    """Upper clip of a token's divergence after the sum; a clipped token has no gradient (SDPG: 20)."""
    temperature: Temperature = 1.0
    """Divides the logits of all sides."""
    weighting: Weighting = Uniform()
    """How much each token counts."""
    gate: Gate = "all"
    normalise: Normalise = "weights"
    importance: Importance | None = None
    """A factor for tokens drawn by older weights; None has none."""
    sampler_importance_clip: float | None = Field(None, gt=0)
    """Multiplies by min(π_old(y_t)/π_sampler(y_t), this): the trainer's against the sampler's probability (SDPO: 2)."""
    skip_tokens: int = Field(0, ge=0)
    """So many first tokens of each response take no part."""
    reduction: Reduction = "token_mean"
    coefficient: Coefficient = 1.0
    data: Literal["rollouts", "references"] = "rollouts"
    """Whose tokens carry the loss: the rollout's, or the worked solution's."""

    @model_validator(mode="after")
    def _clip_needs_summands(self) -> Distill:
        if self.entry_clip is not None and isinstance(self.divergence, Renyi):
            raise ValueError("entry_clip acts on summands and Rényi has none outside its logarithm: set it to null")
        return self

    def targets(self) -> tuple[str, ...]:
        return (self.against, self.mix.reference) if isinstance(self.mix, GeometricMix) else (self.against,)


class SampledKL(Spec):
    """A divergence from ``against`` estimated on the sampled token, w = π(y_t)/p_against(y_t) with gradient through w.

    k1 log w; k2 ½(log w)²; k3 1/w − 1 + log w; and SDPG's surrogates urkl ½(log w)², ufkl 1/w + log w,
    rkl ½(log w + 1)², fkl 1/w (its section 3.3). k1's expected gradient is 0: it is for showing, not for learning.
    """

    kind: Literal["sampled_kl"] = "sampled_kl"
    of: str = "student"
    """Name of the view that learns."""
    against: str = "reference"
    """Name of the view it is held to."""
    estimator: Literal["k1", "k2", "k3", "urkl", "ufkl", "rkl", "fkl"] = "k3"
    """The function of w that is averaged."""
    temperature: Temperature = "sampling"
    weighting: Weighting = Uniform()
    """How much each token counts."""
    gate: Gate = "all"
    normalise: Normalise = "weights"
    importance: Importance | None = None
    """A factor for tokens drawn by older weights; None has none."""
    skip_tokens: int = Field(0, ge=0)
    """So many first tokens of each response take no part."""
    reduction: Reduction = "token_mean"
    coefficient: Coefficient = 1.0
    data: _Rollouts = "rollouts"

    @model_validator(mode="after")
    def _weights_that_need_no_target(self) -> SampledKL:
        if self.weighting.kind not in ("uniform", "position"):
            raise ValueError(f"weighting {self.weighting.kind} needs a full distribution: use a distill term")
        return self

    def targets(self) -> tuple[str, ...]:
        return (self.against,)


class PolicyGradient(Spec):
    """−Σ_t min(ρ_t·A, clip(ρ_t, 1−clip_low, 1+clip_high)·A), ρ_t = π(y_t)/π_old(y_t) (PPO clip).

    With ``dual_clip`` c a negative A is bounded too: the loss is at most −c·A.
    """

    kind: Literal["policy_gradient"] = "policy_gradient"
    of: str = "student"
    """Name of the view that learns."""
    advantage: Advantage = GroupAdvantage()
    """What log-probabilities are multiplied by."""
    modulation: Modulation | None = None
    """How a teacher spreads the advantage over tokens; None spreads it evenly."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """ρ_t counts from 1 minus this."""
    clip_high: float = Field(0.2, gt=0)
    """ρ_t counts up to 1 plus this."""
    dual_clip: float | None = Field(None, gt=1)
    """c, the bound for negative advantages; None has none."""
    sampler_importance_clip: float | None = Field(None, gt=0)
    """Multiplies by min(π_old(y_t)/π_sampler(y_t), this); None leaves it out."""
    temperature: Temperature = "sampling"
    gate: Gate = "all"
    normalise: Normalise = "tokens"
    reduction: Reduction = "token_mean"
    coefficient: Coefficient = 1.0
    data: _Rollouts = "rollouts"

    @model_validator(mode="after")
    def _modulates_rewards(self) -> PolicyGradient:
        if self.modulation is not None and not isinstance(self.advantage, GroupAdvantage):
            raise ValueError("modulation changes a group advantage: set advantage to group, or modulation to null")
        return self

    def targets(self) -> tuple[str, ...]:
        named = [self.modulation.against] if self.modulation else []
        if isinstance(self.advantage, TeacherLogRatio):
            named.append(self.advantage.against)
        return tuple(named)


class Alignment(Spec):
    """A weight of 1 − similarity(ŷ_i, y*_i) for each sample, without gradient (SDS, the anchor's strength).

    Token F1 takes multisets of ids, ROUGE-L F1 the longest common subsequence, edit distance is normalised by the
    longer text. The end token is left out. ``granularity`` batch gives every sample the batch's mean.
    """

    similarity: Literal["token_f1", "rouge_l", "edit_distance", "exact_match"] = "token_f1"
    """How rollout and reference are compared."""
    granularity: Literal["sample", "batch"] = "sample"
    """Whether each sample has its own weight."""


class CrossEntropy(Spec):
    """−Σ_t log π(y_t): imitation of references (SFT), or of rollouts that a method draws from another view."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    of: str = "student"
    """Name of the view that learns."""
    data: Literal["rollouts", "references"] = "references"
    """What is imitated."""
    labels: Literal["own", "references"] = "own"
    """"references" with data "rollouts" asks for y*_t behind the prefix ŷ_<t: the mixed-context control of SDS."""
    alignment: Alignment | None = None
    """A weight for each sample by its rollout's distance from the reference; None is 1."""
    gate: Gate = "all"
    normalise: Normalise = "tokens"
    reduction: Reduction = "token_mean"
    coefficient: Coefficient = 1.0

    @model_validator(mode="after")
    def _labels_differ(self) -> CrossEntropy:
        if self.labels == "references" and self.data == "references":
            raise ValueError('labels "references" is for data "rollouts"; on references the labels are their own')
        return self

    def targets(self) -> tuple[str, ...]:
        return ()


class Preference(Spec):
    """Unpaired preference (BCO) between rollouts that passed and failed; gradient reaches ``of`` (VPD's E-step).

    r̃_i = β·Σ_t[log q(y_t) − sg log π(y_t)], q the view ``of``, π the view ``against``; L = mean over passed of
    softplus(−(r̃ − δ)) + mean over failed of softplus(r̃ − δ), δ the mean of the two class means, without gradient.
    With one class missing δ is the other's mean, or the running one.
    """

    kind: Literal["preference"] = "preference"
    of: str = "teacher"
    """Name of the view that learns."""
    against: str = "prior"
    """Name of the view r̃ is measured from."""
    beta: float = Field(0.1, gt=0)
    """β, the scale of r̃."""
    length: Literal["sum", "mean"] = "sum"
    """Whether r̃ adds the tokens up or averages them."""
    bound: float | None = Field(None, gt=0)
    """r̃ is clipped to ± this; clipped rows have no gradient."""
    shift_rate: float = Field(1.0, gt=0, le=1)
    """δ ← (1 − rate)·δ + rate·(this batch's δ); 1 keeps no memory."""
    success_threshold: float = 0.5
    """Reward from which a rollout counts as passed."""
    temperature: Temperature = "sampling"
    coefficient: Coefficient = 1.0
    data: _Rollouts = "rollouts"

    def targets(self) -> tuple[str, ...]:
        return (self.against,)


class Entropy(Spec):
    """−H(π_t) per token, so that a positive coefficient keeps the policy spread."""

    kind: Literal["entropy"] = "entropy"
    of: str = "student"
    """Name of the view that learns."""
    temperature: Temperature = "sampling"
    reduction: Reduction = "token_mean"
    normalise: Normalise = "weights"
    gate: Gate = "all"
    coefficient: Dynamic = 1.0
    """The term's factor in the sum of the phase; a negative one sharpens the policy."""
    data: _Rollouts = "rollouts"

    def targets(self) -> tuple[str, ...]:
        return ()


AnyTerm = Distill | SampledKL | PolicyGradient | CrossEntropy | Preference | Entropy
Term = Annotated[Annotated[AnyTerm, Field(discriminator="kind")], KindShorthand]
