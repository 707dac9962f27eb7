"""The language of the tiny models' privileged contexts: how each kind of block is written (no torch here).

A context is one text after ``<|hint|>``, made of blocks joined by a space. Everything lies inside the tokenizer's
characters, and ``tiny-full`` is mid-trained on exactly these forms.

=====================  ==========================================  =================================================
block                  written                                     what ``{text}`` is
=====================  ==========================================  =================================================
``solution``           ``4+8+0=12;2+7+1=10;8+0+1=09#0902``         the worked solution
``answer``             ``#0902``                                   the final answer
``partial_solution``   ``4+8+0=12;2+7?`` or ``4+8+0=12;2+7?#0902``  a beginning, the mask, and the answer if it is kept
``facts``              ``f:2+7+1=10,5+5+0=10,4+8+0=12``            a shuffled list of facts, not all of them needed
``guidance``           ``do 2+7+1=10,not 4+8+0=11``                facts to use, then facts not to use
``demonstration``      ``eg:`` and a solution                      the own solution, or ``question:solution`` of another
``peer_success``       ``ok:`` and a response                      a whole response that passed
``peer_failure``       ``no:`` and a response                      a whole response that failed
``attempt``            ``no:`` and a response                      the student's own failed response
``feedback``           ``fix:2+7+1=10``                            the environment's word on the failed response
``critique``           ``note:2+7+1=10``                           the model's own word on the response
``critique_request``   ``check:`` and a response                   the response to criticise
=====================  ==========================================  =================================================

``critique_request`` is a request: the model answers with the first wrong step as it should be (``2+7+1=10``) or with
``ok``. A ``solution`` block before it lets the model compare.
"""

from __future__ import annotations

from training.contexts.language import COMPACT, ContextLanguage

CONTEXT_LANGUAGE = ContextLanguage(
    templates=COMPACT,
    separator=" ",
    mask="?",
    answer_marker="#",
    step_separator=";",
    row_separator=",",
    do="do {text}",
    avoid="not {text}",
    all_right="ok",
    example="{problem}:{text}",
)
