"""How privileged contexts are worded for one model: blocks, their order, and where they stand (no torch here).

A context is one text made of *blocks*. Each kind of block has a template with ``{text}``; the blocks of one prompt are
put into ``order`` and joined by ``separator``. The text then enters the user's turn through a template with
``{problem}`` and ``{context}``: the view's own, else the language's turn for the first block, else the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, get_args

BlockKind = Literal[
    "solution",
    "answer",
    "partial_solution",
    "facts",
    "guidance",
    "demonstration",
    "peer_success",
    "peer_failure",
    "attempt",
    "feedback",
    "critique",
    "critique_request",
]
BLOCK_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)

Block = tuple[BlockKind, str]
"""A kind and the text that its template wraps."""

COMPACT: Mapping[BlockKind, str] = MappingProxyType(
    {
        "solution": "{text}",
        "answer": "#{text}",
        "partial_solution": "{text}",
        "facts": "f:{text}",
        "guidance": "{text}",
        "demonstration": "eg:{text}",
        "peer_success": "ok:{text}",
        "peer_failure": "no:{text}",
        "attempt": "no:{text}",
        "feedback": "fix:{text}",
        "critique": "note:{text}",
        "critique_request": "check:{text}",
    }
)
"""Markers in the tiny tokenizer's characters, for the kinds that a language has no template of its own for."""


@dataclass(frozen=True, slots=True)
class ContextLanguage:
    """Templates and marks of one model's contexts. Texts are inserted and never interpreted."""

    templates: Mapping[BlockKind, str]
    """``critique_request`` asks the model to criticise the attempt in it; the response is a critique."""
    separator: str
    """Between two blocks of one prompt."""
    mask: str
    """Stands where the rest of a partial solution is hidden."""
    answer_marker: str
    """Before the final answer of a partial solution."""
    step_separator: str = "\n"
    """Between two steps of a solution; each step is one fact."""
    row_separator: str = "\n"
    """Between two facts of a list, and between two lines of guidance."""
    do: str = "{text}"
    avoid: str = "{text}"
    """Templates of one line of guidance: a fact to use, a fact not to use."""
    all_right: str = "ok"
    """The critique of an attempt without a wrong step."""
    example: str = "{problem}:{text}"
    """Another problem's statement and solution, as the text of a ``demonstration`` block."""
    turns: Mapping[BlockKind, str] = field(default_factory=dict)
    """Users' turns by the first block of the context; a kind without one stands in the model's own template."""
    order: tuple[BlockKind, ...] = BLOCK_KINDS

    def block(self, kind: BlockKind, text: str) -> str:
        """One block. Raises ValueError for an unknown kind."""
        template = self.templates.get(kind) or COMPACT.get(kind)
        if template is None:
            raise ValueError(f"no context block {kind!r}; valid: {', '.join(BLOCK_KINDS)}")
        return fill(template, text=text)

    def join(self, blocks: Sequence[str]) -> str | None:
        """The context made of ``blocks``; None without any, which is the plain question."""
        return self.separator.join(blocks) if blocks else None

    def ordered(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks in the language's order; equal kinds keep theirs."""
        return sorted(blocks, key=lambda block: self.order.index(block[0]))

    def compose(self, blocks: Sequence[Block]) -> str | None:
        """The context made of unordered ``blocks``."""
        return self.join([self.block(kind, text) for kind, text in self.ordered(blocks)])

    def turn(self, blocks: Sequence[Block]) -> str | None:
        """The user's turn for a context of ``blocks``; None leaves it to the model's template."""
        return self.turns.get(self.ordered(blocks)[0][0]) if blocks else None

    def partial(self, prefix: str, answer: str | None = None) -> str:
        """The text of a ``partial_solution`` block: what is revealed, the mask, the final answer where it is kept."""
        return prefix + self.mask + ("" if answer is None else self.answer_marker + answer)

    def facts(self, rows: Sequence[str]) -> str:
        """The text of a ``facts`` block."""
        return self.row_separator.join(rows)

    def guidance(self, do: Sequence[str], avoid: Sequence[str]) -> str:
        """The text of a ``guidance`` block: the facts to use, then those not to use."""
        lines = [fill(self.do, text=row) for row in do]
        return self.row_separator.join([*lines, *(fill(self.avoid, text=row) for row in avoid)])

    def worked_example(self, problem: str, solution: str) -> str:
        """The text of a ``demonstration`` block that shows another problem."""
        return fill(self.example, problem=problem, text=solution)

    def steps(self, solution: str) -> tuple[str, ...]:
        """The facts that a worked solution uses: ``4+8+0=12;2+7+1=10#102`` gives ``4+8+0=12`` and ``2+7+1=10``."""
        return tuple(solution.partition(self.answer_marker)[0].split(self.step_separator))

    def in_one_turn(self) -> ContextLanguage:
        """The same words, with every context in the model's template: for a template that the user chose."""
        return replace(self, turns={})


def fill(template: str, **texts: str) -> str:
    """``template`` with its ``{name}`` fields replaced in one pass: fields in the inserted texts stay as they are."""
    parts = [template]
    for name, text in texts.items():
        parts = [piece for part in parts for piece in _split(part, f"{{{name}}}", text)]
    return "".join(parts)


class _Inserted(str):
    """A text that came in: not searched for fields."""

    __slots__ = ()


def _split(part: str, name: str, text: str) -> list[str]:
    if isinstance(part, _Inserted):
        return [part]
    pieces: list[str] = []
    for index, piece in enumerate(part.split(name)):
        pieces += [_Inserted(text), piece] if index else [piece]
    return pieces


_CONTEXT_FIRST = "{context}\n\n{problem}"
_SOLVE_AGAIN = "{problem}\n\n{context}\n\nNow solve the original question correctly."

NATURAL_LANGUAGE = ContextLanguage(
    templates=MappingProxyType(
        {
            "solution": "{text}",
            "answer": "The final answer is known to be: {text}",
            "partial_solution": "{text}",
            "facts": "These facts may help:\n{text}",
            "guidance": "Advice for this question:\n{text}",
            "demonstration": "Here is a solved example:\n{text}",
            "peer_success": "A correct solution of this question:\n\n{text}",
            "peer_failure": "A wrong solution of this question, not to be repeated:\n\n{text}",
            "attempt": "An earlier attempt that failed:\n\n{text}",
            "feedback": "Feedback on an earlier attempt that failed:\n\n{text}",
            "critique": "Remarks on an earlier attempt:\n\n{text}",
            "critique_request": "Here is an attempt at this question:\n\n{text}",
        }
    ),
    separator="\n\n",
    mask="\n[the rest is hidden]",
    answer_marker="\nFinal answer: ",
    do="Do: {text}",
    avoid="Avoid: {text}",
    all_right="The attempt is correct.",
    example="Question:\n{problem}\n\nSolution:\n{text}",
    turns=MappingProxyType(
        {
            "answer": _CONTEXT_FIRST,
            "facts": _CONTEXT_FIRST,
            "guidance": _CONTEXT_FIRST,
            "demonstration": "{context}\n\nNow answer this question in your own words:\n{problem}",
            "peer_success": _SOLVE_AGAIN,
            "peer_failure": _SOLVE_AGAIN,
            "attempt": _SOLVE_AGAIN,
            "feedback": _SOLVE_AGAIN,
            "critique": _SOLVE_AGAIN,
            "critique_request": "{problem}\n\n{context}\n\nCheck the attempt step by step. Name the first mistake and "
            "how to put it right, in a few sentences. Do not write a new solution. If nothing is wrong, say so.",
        }
    ),
)
"""For instruction-tuned models. Parts and order of prompts after a failed attempt follow SDPO (arXiv:2601.20802)."""
