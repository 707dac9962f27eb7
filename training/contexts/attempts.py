"""Contexts made of the rollouts themselves: a peer's success, the environment's feedback, the policy's own critique."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from evaluation.problems import Problem
from evaluation.samplers.base import SamplingParams
from training.contexts.language import Block, ContextLanguage
from training.contexts.rows import ContextRow, ContextTokens, PrivilegedContext, context_of, strip_thinking
from training.contexts.specs import Context, EnvironmentFeedbackContext, PeerSuccessContext, SelfCritiqueContext


def peer_success(
    context: PeerSuccessContext, rows: Sequence[ContextRow], language: ContextLanguage, tokens: ContextTokens
) -> list[PrivilegedContext | None]:
    """For each row the first successful rollout of its group, and feedback on its own failed attempt (SDPO).

    A success is a reward of ``threshold`` or more; what could not be graded is none. Peers of which nothing is left
    without their thinking are passed over. None where a row has neither block.
    """
    successes = _successes(rows, context.threshold, tokens)
    built: list[PrivilegedContext | None] = []
    for index, row in enumerate(rows):
        others = (text for place, text in successes[row.group] if place != index or not context.exclude_self)
        peer = next(others, None)
        blocks: list[Block] = [] if peer is None else [("peer_success", peer)]
        if context.feedback == "always" or (context.feedback == "without_peer" and peer is None):
            blocks += _feedback(row, tokens)
        built.append(_with_attempt(blocks, row, context.attempt, language, tokens))
    return built


def environment_feedback(
    context: EnvironmentFeedbackContext, rows: Sequence[ContextRow], language: ContextLanguage, tokens: ContextTokens
) -> list[PrivilegedContext | None]:
    """What the environment says of each row's own failed attempt; None where it says nothing."""
    return [_with_attempt(_feedback(row, tokens), row, context.attempt, language, tokens) for row in rows]


def self_critique(
    context: SelfCritiqueContext,
    rows: Sequence[ContextRow],
    language: ContextLanguage,
    tokens: ContextTokens,
    critiques: Mapping[int, str],
) -> list[PrivilegedContext | None]:
    """The critique of each row by its place in ``rows``, without its thinking; None for a row without one."""
    built: list[PrivilegedContext | None] = []
    for index, row in enumerate(rows):
        critique = tokens.clean(strip_thinking(critiques.get(index, "")))
        blocks: list[Block] = [("critique", critique)] if critique else []
        if blocks and context.attempt:
            blocks += _attempt(row, tokens)
        built.append(context_of(blocks, language, row.problem.id) if blocks else None)
    return built


@dataclass(frozen=True, slots=True)
class AuxiliaryRequest:
    """One prompt to be answered by the policy before a context can be built; ``row`` is the place of its row."""

    row: int
    prompt_ids: tuple[int, ...]


class FittedPrompt(Protocol):
    @property
    def ids(self) -> tuple[int, ...]: ...


class RequestRenderer(ContextTokens, Protocol):
    """What requests need of ``training.rendering.Renderer``."""

    context_length: int | None

    def fitted(
        self,
        problem: Problem,
        context_text: str,
        limit: int | None,
        *,
        template: str | None = None,
        thinking: bool | None = None,
    ) -> FittedPrompt: ...


def auxiliary_requests(
    context: Context,
    rows: Sequence[ContextRow],
    language: ContextLanguage,
    renderer: RequestRenderer,
    *,
    thinking: bool | None = None,
) -> list[AuxiliaryRequest]:
    """What the policy must be asked before ``context`` can be built: for self_critique, to criticise each attempt.

    Attempts of which nothing is left without their thinking are not asked about, and those that would leave the
    critique no room are cut at their end. Other contexts ask nothing.
    """
    if not isinstance(context, SelfCritiqueContext):
        return []
    positions, requests = renderer.context_length, []
    room = None if positions is None else positions - context.max_new_tokens
    for index, row in enumerate(rows):
        attempt = _attempt(row, renderer)
        if attempt:
            text, turn = request_for(attempt[0][1], language)
            prompt = renderer.fitted(row.problem, text, room, template=turn, thinking=thinking)
            requests.append(AuxiliaryRequest(index, prompt.ids))
    return requests


def request_for(attempt: str, language: ContextLanguage) -> tuple[str, str | None]:
    """The context text and the user's turn that ask for a critique of ``attempt``."""
    return language.block("critique_request", attempt), language.turn([("critique_request", attempt)])


def auxiliary_sampling(context: Context) -> SamplingParams | None:
    """How the answers to ``auxiliary_requests`` are drawn; None for contexts that ask nothing."""
    if not isinstance(context, SelfCritiqueContext):
        return None
    return SamplingParams(max_new_tokens=context.max_new_tokens, temperature=context.temperature)


def _successes(
    rows: Sequence[ContextRow], threshold: float, tokens: ContextTokens
) -> defaultdict[int, list[tuple[int, str]]]:
    """Group -> (place, text) of its successful rollouts, in their order."""
    found: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.reward is not None and row.reward >= threshold and row.text is not None:
            text = tokens.clean(strip_thinking(row.text))
            if text:
                found[row.group].append((place, text))
    return found


def _feedback(row: ContextRow, tokens: ContextTokens) -> list[Block]:
    said = tokens.clean(row.feedback or "")
    return [("feedback", said)] if said else []


def _attempt(row: ContextRow, tokens: ContextTokens) -> list[Block]:
    attempt = tokens.clean(strip_thinking(row.text or ""))
    return [("attempt", attempt)] if attempt else []


def _with_attempt(
    blocks: list[Block], row: ContextRow, attempt: bool, language: ContextLanguage, tokens: ContextTokens
) -> PrivilegedContext | None:
    # The attempt goes with what else is shown: alone it would teach a row to repeat its own mistake.
    if not blocks:
        return None
    shown = _attempt(row, tokens) if attempt and row.failed else []
    return context_of([*blocks, *shown], language, row.problem.id)
