"""Code answers: the answer's program and the problem's tests in the sandbox, believed only with a secret word.

The answer is executed as a module (not as ``__main__``), then each test in the same namespace, and only then does
the harness read a random word from a descriptor and print it. An answer that exits early, prints guesses or reads
the files it can find never shows the word, and fails. What this cannot rule out: answer and tests share a process,
so a program written against this very harness (or an object that claims to equal everything) can pass; a high score
on tests is evidence, not proof.
"""

from __future__ import annotations

import json
import secrets

from evaluation.grading.extraction import fenced_code
from evaluation.grading.sandbox import Limits, Outcome, Sandbox, find_sandbox
from evaluation.problems import Grade, Problem, Verdict

VERSION = "1"

_HARNESS = """
def _grade():
    import fcntl, json, os, sys
    def read(count):
        data = b""
        while len(data) < count:
            part = os.read(0, count - len(data))
            if not part:
                raise EOFError("the job is cut short")
            data += part
        return data
    job = json.loads(read(int(read(20))))
    secret, shown = fcntl.fcntl(0, fcntl.F_DUPFD, job["secret_at"]), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    def fail(where, error):
        print(f"{where}: {type(error).__name__}: {error}"[:2000], file=sys.stderr, flush=True)
        os._exit(1)
    namespace = {"__name__": "answer", "__builtins__": __builtins__}
    answer, tests = job.pop("answer"), job.pop("tests")
    try:
        exec(compile(answer, "answer.py", "exec"), namespace)
    except BaseException as error:
        fail("the program", error)
    for test in tests:
        try:
            exec(compile(test, "test.py", "exec"), namespace)
        except BaseException as error:
            fail(f"the test {test.strip()!r}", error)
    try:
        sys.stdout.flush()
    except BaseException:
        pass
    os.write(shown, b"\\n" + os.read(secret, 64))
    os._exit(0)
_grade()
"""


def grade_code(problem: Problem, text: str, *, sandbox: Sandbox | None = None, limits: Limits | None = None) -> Grade:
    """Passes iff the last Python code block of ``text`` passes all of ``problem.tests``.

    Lenient: the same where there is a code block, else the whole text as a program. Programs that fail, exit early,
    run out of time or memory or flood the output are wrong answers; a sandbox that fails to start is ``not_scored``.
    Raises SandboxUnavailableError when there is no sandbox, ValueError when the problem has no tests.
    """
    if not problem.tests:
        raise ValueError(f"problem {problem.id}: no tests to grade a program by")
    code = fenced_code(text)
    outcome, word = _run(code if code is not None else text, problem.tests, sandbox or find_sandbox(), limits)
    judged, feedback = _judge(outcome, word)
    verdict: Verdict = judged if code is not None else "fail"
    return Grade(
        verdict=verdict,
        score=None if verdict == "not_scored" else float(verdict == "pass"),
        grader="code",
        version=VERSION,
        extracted=code,
        feedback=(feedback or None) if code is not None else "no Python code block",
        error=f"the sandbox failed: {feedback}" if verdict == "not_scored" else None,
        well_formed=code is not None,
        lenient=judged,
    )


def _run(code: str, tests: tuple[str, ...], sandbox: Sandbox, limits: Limits | None) -> tuple[Outcome, bytes]:
    word = secrets.token_hex(32).encode()
    job = json.dumps({"answer": code, "tests": tests, "secret_at": 16 + secrets.randbelow(32)}).encode()
    return sandbox.run(_HARNESS, stdin=f"{len(job):020d}".encode() + job + word, limits=limits), word


def _judge(outcome: Outcome, word: bytes) -> tuple[Verdict, str]:
    """The verdict on a program, and what to say about it."""
    stderr = outcome.stderr.decode(errors="replace").strip()
    if not outcome.started:
        return "not_scored", stderr or "no message"
    if outcome.timed_out:
        return "fail", "the program ran out of time"
    if outcome.flooded:
        return "fail", "the program wrote too much output"
    if outcome.exit_code == 0 and outcome.stdout.endswith(b"\n" + word):
        return "pass", ""
    return "fail", stderr[-2000:] or f"the program ended early (exit code {outcome.exit_code})"
