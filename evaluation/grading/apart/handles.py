"""The answer's process and its objects, as the tests see them."""

from __future__ import annotations

import builtins
import json
import os
import signal
from collections import deque

from evaluation.grading.apart.answer import ARITHMETIC, ORDER
from evaluation.grading.apart.values import CannotCrossError, decode, encode

TYPE_CHECKING = False  # see values
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TextIO


class AnswerError(Exception):
    """What the answer raised, where no builtin exception says it."""


class AnswerEndedError(BaseException):
    """The answer's process is gone. No ``except Exception`` of a test is to catch it."""


class Answer:
    """The answer's process. ``line`` is the line of the answer that the last request failed at."""

    def __init__(self, pid: int, requests: TextIO, replies: TextIO) -> None:
        self.pid, self.requests, self.replies = pid, requests, replies
        self.line: int | None = None

    def read(self) -> dict[str, Any]:
        """The next reply. Raises what the answer raised, or AnswerEndedError."""
        try:
            line = self.replies.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            self.ended()
        reply = json.loads(line)
        if "raised" in reply:
            self.line = reply["line"]
            raise exception(reply)
        return reply

    def ended(self) -> NoReturn:
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGXCPU)  # so that the sandbox sees the time run out
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        raise AnswerEndedError(f"the program ended early ({how})")

    def ask(self, do: str, *arguments: Any, **named: Any) -> Any:
        """The result of an operation in the answer's interpreter; changed containers are changed here as well."""
        self.line = None
        coded = [encode(argument, number_of) for argument in arguments]
        request = {"do": do, "arguments": coded, "named": {n: encode(v, number_of) for n, v in named.items()}}
        try:
            self.requests.write(json.dumps(request) + "\n")
            self.requests.flush()
        except OSError:
            self.ended()
        reply = self.read()
        for place, value in reply.get("changed", {}).items():
            restore(arguments[int(place)], self.decode(value))
        return self.decode(reply["value"])

    def decode(self, coded: Any) -> Any:
        return decode(coded, lambda number: Handle(self, int(number)), functions=False)


def number_of(value: Any) -> dict[str, int]:
    if type(value) is Handle:
        return {"handle": value._number}
    raise CannotCrossError(type(value).__name__)


def restore(argument: Any, value: Any) -> None:
    """Puts what the answer made of a container that it was given into the container itself."""
    if isinstance(argument, (list, bytearray)):
        argument[:] = value
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(value)
    elif isinstance(argument, deque):
        argument.clear()
        argument.extend(value)


def exception(reply: dict[str, Any]) -> BaseException:
    """The nearest builtin exception to what the answer raised."""
    for name in reply["raised"]:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind not in (Exception, BaseException):
            try:
                return kind(reply["message"])
            except TypeError:  # UnicodeDecodeError and its kin take five arguments
                continue
    return AnswerError(f"{reply['raised'][0]}: {reply['message']}")


class Handle:
    """An object of the answer.

    It equals nothing but another object of the answer, and then by the answer's word. No operator between it and a
    plain value of the tests may give a plain value: an object that is 0 whatever one takes from it would be close to
    any number.
    """

    __slots__ = ("_answer", "_number")
    _answer: Answer
    _number: int

    def __init__(self, answer: Answer, number: int) -> None:
        object.__setattr__(self, "_answer", answer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._answer.ask("call", self, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return self._answer.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._answer.ask("setattr", self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Handle and bool(self._answer.ask("eq", self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int(self._answer.ask("hash", self))

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is Handle and bool(self._answer.ask("isinstance", value, self))

    def __str__(self) -> str:
        return str(self._answer.ask("str", self))

    def __repr__(self) -> str:
        return str(self._answer.ask("repr", self))


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Handle, *arguments: Any) -> Any:
        return self._answer.ask(name, self, *arguments)

    return method


def _forward_operator(name: str) -> Callable[..., Any]:
    def method(self: Handle, *others: Any) -> Any:
        result = self._answer.ask(name, self, *others)
        if type(result) is not Handle and not (others and all(type(other) is Handle for other in others)):
            raise TypeError(f"{name} of an object of the program and a plain value is not believed")
        return result

    return method


for _name in ("iter", "next", "len", "bool", "getitem", "setitem", "delitem"):
    setattr(Handle, f"__{_name}__", _forward(_name))
for _name in (*ORDER, *ARITHMETIC, "contains"):
    setattr(Handle, f"__{_name}__", _forward_operator(_name))
