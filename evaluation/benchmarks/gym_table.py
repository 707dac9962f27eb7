r"""The families of reasoning-gym 0.1.25: what they ask, and what a right answer may look like.

Scorers of the library are given only texts that look like an answer. Some of them give full marks to an answer with
words around it, and some *evaluate* the text as Python (``eval``, ``sympy.parse_expr``): what a model wrote must not
reach those unchecked. So a family has either one right answer, known beforehand, or a ``shape``: a regular expression
that the whole answer must match before the scorer sees it, written so that no name, call or attribute fits into it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One family."""

    title: str
    shape: str | None = None
    """What any right answer looks like, where there are several; None: the library's own answer is the only one."""
    listed: bool = False
    """Shown by ``stillroom benchmarks``: short questions, or one of the usual kinds of reasoning."""
    alike: bool = False
    """Questions come from few templates: training questions nearly like a held-out one are left out."""
    partial: bool = True
    """The scorer may be asked about wrong answers; False where it would evaluate them."""
    example: str | None = None
    """Field of the entry's metadata that holds a right answer, where the library names none."""


_NUMBER = r"[+-]?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?"
_ARITHMETIC = r"(?:[\d\s()+-]|\*(?!\*)|/(?!/))+"
_EXPRESSION = (
    r"(?:\d{1,12}(?:\.\d{1,12})?(?![\d.])|[-+/()\s]|\*(?!\*)|\*\*\s*(?=\()|\*\*\s*\d{1,3}(?!\d|\s*\*\*)|(?:a?sin|a?cos|a?tan|exp|log|ln|sqrt|pi)(?![A-Za-z])"
    r"|(?<![A-Za-z])[A-HJ-MPRT-Za-z](?![A-Za-z]))+"
)
_WORDS_IN_LISTS = r"\[[][\s\",'A-Za-z-]*\]"
_MOVE = r"Move disk \d{1,2} from Peg \d{1,2} to Peg \d{1,2}"
_ROLE = r"[A-Za-z]+ is an? [a-z]+"

FAMILIES: dict[str, Family] = {
    # arithmetic and algebra
    "chain_sum": Family("sums and differences", listed=True),
    "basic_arithmetic": Family("four operations with brackets", listed=True),
    "decimal_chain_sum": Family("sums of decimals", listed=True),
    "decimal_arithmetic": Family("four operations on decimals"),
    "products": Family("products", listed=True),
    "gcd": Family("greatest common divisors", listed=True),
    "lcm": Family("least common multiples", listed=True),
    "count_bits": Family("ones in a binary number", listed=True),
    "count_primes": Family("primes in an interval", listed=True),
    "bitwise_arithmetic": Family("sums and shifts of hexadecimal numbers", listed=True),
    "base_conversion": Family("numbers in other bases", listed=True),
    "dice": Family("odds of a throw", listed=True),
    "coin_flip": Family("odds of coins"),
    "fraction_simplification": Family(
        "fractions in lowest terms", r"\$?(?:\d+\s*/\s*\d+|\\d?frac\{\d+\}\{\d+\})\$?", listed=True
    ),
    "prime_factorization": Family("prime factors", r"\d{1,12}(?:\s*×\s*\d{1,12})*", listed=True),
    "power_function": Family("powers to three significant figures", _NUMBER),
    "number_format": Family("the largest or smallest of numbers in several notations", _NUMBER),
    "complex_arithmetic": Family("four operations on complex numbers", r"[-+\d.\sij]+"),
    "simple_equations": Family("linear equations", listed=True),
    "polynomial_equations": Family("real roots", rf"(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?"),
    "simple_integration": Family("integrals of polynomials", _EXPRESSION),
    "intermediate_integration": Family("integrals by substitution and by parts", _EXPRESSION),
    "simple_geometry": Family("angles of polygons", listed=True),
    "advanced_geometry": Family("triangles in the plane", rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)|{_NUMBER}\s*°?"),
    "number_sequence": Family("next number of a sequence", listed=True),
    "leg_counting": Family("legs of animals", listed=True),
    "gsm_symbolic": Family("word problems from templates", listed=True, alike=True),
    "time_intervals": Family("time between two dates"),
    "calendar_arithmetic": Family("dates and weekdays", listed=True, alike=True),
    # texts and lists
    "letter_counting": Family("letters in a text", listed=True, alike=True),
    "spell_backward": Family("words spelled backward", listed=True),
    "word_sequence_reversal": Family("words in reverse order", listed=True),
    "word_sorting": Family("words in order", listed=True),
    "number_sorting": Family("numbers in order", r"\[[\s\"',\d.+-]*\]"),
    "number_filtering": Family("numbers above or below a limit"),
    "caesar_cipher": Family("a shifted alphabet", listed=True),
    "letter_jumble": Family("words with jumbled letters"),
    "sentence_reordering": Family("sentences with jumbled words"),
    "group_anagrams": Family("anagrams in groups", _WORDS_IN_LISTS),
    "palindrome_generation": Family("a palindrome from letters", r"[A-Za-z]+"),
    "palindrome_partitioning": Family("all ways to cut a text into palindromes", _WORDS_IN_LISTS),
    "string_insertion": Family("insertions by rule", partial=False),
    "string_manipulation": Family("rewriting by rules"),
    "string_splitting": Family("machines and parts by rules"),
    "string_synthesis": Family("blocks by rules"),
    "binary_alternation": Family("fewest changes to an alternating text"),
    "figlet_font": Family("words in letters made of signs"),
    "needle_haystack": Family("one fact among many"),
    # grids
    "maze": Family("steps through a maze", listed=True, alike=True),
    "shortest_path": Family(
        "a way through a grid", r"infeasible|(?:(?:up|down|left|right)(?:\s+|$))+", listed=True, alike=True
    ),
    "largest_island": Family("the largest island of a grid"),
    "rotten_oranges": Family("time until a grid is filled"),
    "binary_matrix": Family("distance to the nearest zero", partial=False),
    "spiral_matrix": Family("a matrix in spiral order", partial=False),
    "rotate_matrix": Family("rotated matrices"),
    "manipulate_matrix": Family("operations on a matrix"),
    "pool_matrix": Family("pooled matrices", r"[-+\d.\s]+"),
    "game_of_life": Family("cells after some steps"),
    "arc_1d": Family("a rule from rows"),
    "arc_agi": Family("a rule from grids"),
    "rearc": Family("a rule from generated grids"),
    # logic
    "syllogism": Family("whether a conclusion follows", listed=True, alike=True),
    "knights_knaves": Family(
        "who tells the truth", rf"{_ROLE}(?:(?:,? and |, ){_ROLE})*\.?", listed=True, alike=True
    ),
    "family_relationships": Family("who is whose", listed=True, alike=True),
    "circuit_logic": Family("the output of a circuit"),
    "self_reference": Family("statements about themselves"),
    "zebra_puzzles": Family("who lives where"),
    "color_cube_rotation": Family("the colour of a turned cube"),
    "list_functions": Family("a rule from examples", listed=True),
    "bf": Family("the output of a Brainfuck program", listed=True, alike=True),
    "codeio": Family("the input or output of a Python function"),
    "ab": Family("rewriting of tokens"),
    "course_schedule": Family("whether all courses can be taken"),
    "path_star": Family("the way along a star graph"),
    "graph_color": Family("colours of a graph", r"\{[\s\d\",:]*\}", example="possible_answer"),
    # puzzles and plans
    "countdown": Family("an expression for a number", _ARITHMETIC, listed=True),
    "cryptarithm": Family("digits for letters", r"[A-Z]\s*=\s*\d(?:\s*,\s*[A-Z]\s*=\s*\d)*"),
    "mini_sudoku": Family("sudoku, four by four", listed=True),
    "sudoku": Family("sudoku"),
    "futoshiki": Family("a latin square with inequalities"),
    "kakurasu": Family("ones with weighted sums", r"[01\s]+"),
    "survo": Family("a square with sums"),
    "tower_of_hanoi": Family("moves of disks", rf"{_MOVE}(?:\s+{_MOVE})*", listed=True),
    "jugs": Family("measuring with jugs", r"\[[\s\",A-Za-z>-]*\]"),
    "knight_swap": Family("exchanging knights", r"[Nn]o|\[[\s\",A-Za-z0-9]*\]"),
    "sokoban": Family("pushing boxes", r"[UDLR]+"),
    "quantum_lock": Family("buttons to a number", r"[ABC](?:\s*(?:→|->)\s*[ABC])*"),
    "rubiks_cube": Family("turns of a cube", r"[LRUDFB]'?(?:\s+[LRUDFB]'?)*", example="example_correct_answer"),
    "tsumego": Family("a move in go"),
    "mahjong_puzzle": Family("a tile in mahjong"),
}  # fmt: skip

NOT_OFFERED: dict[str, str] = {
    "game_of_life_halting": "its scorer gives full marks to any text",
    "puzzle24": "its scorer takes any four numbers, not the four that are given",
    "propositional_logic": "its scorer gives full marks to a premise said again",
    "boxnet": "the library names no right answer to check its scorer with",
    "rush_hour": "the library names no right answer to check its scorer with",
    "word_ladder": "its answers change from process to process",
    "ransom_note": "its questions change from process to process",
    "isomorphic_strings": "its questions change from process to process",
    "polynomial_multiplication": "its questions change from process to process",
    "emoji_mystery": "its questions differ in signs only, which the check for shared problems does not tell apart",
    "rectangle_count": "its questions differ in signs only, which the check for shared problems does not tell apart",
    "modulo_grid": "its questions differ in signs only, which the check for shared problems does not tell apart",
    "n_queens": "its questions differ in signs only, which the check for shared problems does not tell apart",
    "aiw": "its questions are so few and so alike that training ones are nearly test ones",
    "acre": "the library makes all its questions at once, which takes minutes",
    "composite": "it is a mixture of families and not one: name those",
}
"""Families left out, and why."""
