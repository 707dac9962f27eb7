"""The answer's side: runs the answer and does with its objects what the tests ask."""

from __future__ import annotations

import builtins
import json
import operator
import os
import types
from collections import deque

from evaluation.grading.apart.values import decode, encode, short

TYPE_CHECKING = False  # see values
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "neg", "abs")
ORDER = ("lt", "le", "gt", "ge")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *arguments, **named: function(*arguments, **named),
    "getattr": getattr,
    "setattr": setattr,
    "hash": hash,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "isinstance": isinstance,
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains", "eq")},
    **{name: getattr(operator, name) for name in (*ORDER, *ARITHMETIC)},
}


def executed(job: dict[str, Any]) -> dict[str, Any]:
    """The namespace of the answer, which runs as a module and not as the main program."""
    namespace: dict[str, Any] = {"__name__": "answer", "__builtins__": builtins}
    if job["setup"]:
        exec(compile(job["setup"], "setup.py", "exec"), namespace)
    exec(compile(job["answer"], "answer.py", "exec"), namespace)
    return namespace


def described(error: BaseException) -> dict[str, Any]:
    """An exception of the answer as JSON; ``line`` is the answer's line that it came from."""
    line, trace = error.lineno if isinstance(error, SyntaxError) else None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "answer.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        message = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:  # the answer's own exception may raise what it likes
        message = ""
    return {"raised": [kind.__name__ for kind in type(error).__mro__], "message": short(message), "line": line}


class Served:
    """The objects of the answer that the tests hold handles of."""

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def handle(self, value: Any) -> dict[str, int]:
        self.objects.append(value)
        return {"handle": len(self.objects) - 1}

    def decode(self, coded: Any) -> Any:
        return decode(coded, lambda number: self.objects[number], functions=True)

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does one request. ``changed``: the containers among a call's arguments that the call changed."""
        arguments = [self.decode(argument) for argument in request["arguments"]]
        named = {name: self.decode(value) for name, value in request["named"].items()}
        reply = {"value": encode(OPERATIONS[request["do"]](*arguments, **named), self.handle)}
        if request["do"] == "call":
            changed = {}
            for place, argument in enumerate(arguments):
                if type(argument) in (list, dict, set, bytearray, deque):
                    coded = encode(argument, self.handle)
                    if coded != request["arguments"][place]:
                        changed[place] = coded
            reply["changed"] = changed
        return reply


def serve(job: dict[str, Any], requests: TextIO, replies: TextIO) -> None:
    """Runs the answer, tells its names, and answers the tests' requests; does not return."""
    served = Served()

    def tell(what: dict[str, Any]) -> None:
        replies.write(json.dumps(what) + "\n")
        replies.flush()

    try:
        names: dict[str, Any] = {}
        for name, value in list(executed(job).items()):
            if isinstance(value, types.ModuleType):
                names[name] = {"module": value.__name__}
            elif not name.startswith("__"):
                names[name] = encode(value, served.handle)
        tell({"names": names})
    except BaseException as error:  # whatever the answer raises is told
        tell(described(error))
        os._exit(1)
    for line in requests:
        try:
            reply = served.do(json.loads(line))
        except BaseException as error:
            reply = described(error)
        tell(reply)
    os._exit(0)
