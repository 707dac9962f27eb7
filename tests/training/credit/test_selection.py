from __future__ import annotations

import math

import pytest
import torch

from training.credit.selection import gap_positions, min_max, position_weights, token_scores, top_tokens
from training.method import TopTokens


def test_selection_by_hand() -> None:
    # Sequence 0 (4 tokens, keep ½ -> 2): scores .1 .9 .9 .9: the two earliest of the tie. Sequence 1 (1 token): it.
    score = torch.tensor([0.1, 0.9, 0.9, 0.9, -5.0])
    sequence = torch.tensor([0, 0, 0, 0, 1])

    assert top_tokens(score, sequence, 0.5).tolist() == [False, True, True, False, True]


@pytest.mark.parametrize("share", [0.01, 0.29, 0.3, 0.1 + 0.2, 0.57, 1.0])
def test_counts_are_exact(share: float) -> None:
    """⌊keep·m⌋ and ⌈share·n⌉ in whole numbers of a hundredth: 0.29 · 100 is 28.999… in binary."""
    for length in (1, 7, 100, 300):
        score, sequence = torch.rand(length), torch.zeros(length, dtype=torch.int64)
        hundredths = round(share * 100) * length
        kept = int(top_tokens(score, sequence, share).sum())
        picked = int(gap_positions(score, torch.zeros(length), sequence, share, "absolute").sum())
        assert kept == max(1, hundredths // 100)
        assert picked == -(-hundredths // 100)


def test_scores_are_those_written_out_token_by_token() -> None:
    generator = torch.Generator().manual_seed(3)
    entropy, apart = (torch.rand(41, generator=generator, dtype=torch.float64) for _ in range(2))
    weighting = TopTokens(entropy_percentile=0.9)

    found = token_scores(weighting, entropy, apart, None)

    cut = sorted(entropy.tolist())[36]  # 0.9 · 40
    clipped = [min(value, cut) for value in entropy.tolist()]
    spread = [(value - min(clipped)) / (max(clipped) - min(clipped)) for value in clipped]
    far = [(value - float(apart.min())) / (float(apart.max()) - float(apart.min())) for value in apart.tolist()]
    assert found.tolist() == pytest.approx([h + d - h * d for h, d in zip(spread, far, strict=True)])
    only = token_scores(weighting.model_copy(update={"score": "entropy"}), entropy * math.log(2), None, None)
    assert only.tolist() == pytest.approx(spread)  # the unit of the entropy does not matter
    overconfident = token_scores(weighting.model_copy(update={"score": "overconfident"}), entropy, None, apart)
    assert overconfident.tolist() == pytest.approx([d * (1 - h) for h, d in zip(spread, apart.tolist(), strict=True)])


def test_min_max_of_a_constant_is_zero() -> None:
    assert min_max(torch.full((3,), 7.0)).tolist() == [0, 0, 0]
    assert min_max(torch.zeros(0)).tolist() == []


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("absolute", [False, True, False, True]),
        ("target_higher", [True, False, True, False]),
        ("student_higher", [False, True, False, True]),
    ],
)
def test_gaps_of_entropy_by_direction(gap: str, expected: list[bool]) -> None:
    target, student = torch.tensor([1.0, 0.0, 0.5, 0.0]), torch.tensor([0.5, 3.0, 0.0, 2.0])

    picked = gap_positions(target, student, torch.zeros(4, dtype=torch.int64), 0.5, gap)  # type: ignore[arg-type]

    assert picked.tolist() == expected


def test_positions_by_hand() -> None:
    weights = position_weights(torch.tensor([0, 1, 2, 0]), torch.tensor([3, 3, 3, 1]), 2.0)

    assert weights.tolist() == pytest.approx([1 / 9, 4 / 9, 1, 1])
