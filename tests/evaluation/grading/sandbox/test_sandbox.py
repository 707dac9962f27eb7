"""Attacks on the sandbox. Each program tries something that must not work, and says so if it did."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluation.grading import sandbox as choice
from evaluation.grading.sandbox import Limits, Sandbox, SandboxUnavailableError, find_sandbox
from evaluation.grading.sandbox.bubblewrap import Bubblewrap, find_executable
from evaluation.grading.sandbox.launch import NOBODY
from evaluation.grading.sandbox.rlimits import ResourceLimits
from tests.evaluation.grading.conftest import working

QUICK = Limits(cpu_seconds=2, wall_seconds=10, memory_bytes=256 << 20)


def _namespaces_work(executable: str) -> bool:
    """Whether the plainest use of bubblewrap works here, by the user that programs run as."""
    user = NOBODY if os.getuid() == 0 else None
    plain = [executable, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    return subprocess.run(plain, user=user, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def bubblewrap() -> Sandbox:
    executable = find_executable()
    if executable is None:
        pytest.skip("bubblewrap is not here: apt-get install -y bubblewrap")
    if not _namespaces_work(executable):
        pytest.skip("this system does not let bubblewrap make namespaces")
    found = working(lambda python, prefix: Bubblewrap(executable, python, prefix))
    assert found is not None, "bubblewrap works here and the sandbox made with it does not"
    return found


@pytest.fixture(scope="module")
def rlimits() -> Sandbox:
    found = working(lambda python, _: ResourceLimits(python))
    if found is None:
        pytest.skip("this system has no shell with the resource limits needed")
    return found


@pytest.fixture(params=["bubblewrap", "sandlock"])
def isolating(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["bubblewrap", "sandlock", "rlimits"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


def _running(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in command:
            found.append(folder.name)
    return found


# --- what any back end owes --------------------------------------------------------------------------------------


def test_output_exit_code_and_standard_input_come_through(any_sandbox: Sandbox) -> None:
    source = "import sys\nprint(sys.stdin.read().upper())\nprint('oops', file=sys.stderr)\nsys.exit(7)"
    outcome = any_sandbox.run(source, stdin=b"hello" * 20_000, limits=Limits(output_bytes=200_000))
    assert outcome.started and outcome.exit_code == 7 and not outcome.timed_out
    assert outcome.stdout == b"HELLO" * 20_000 + b"\n"
    assert outcome.stderr == b"oops\n"


def test_the_environment_is_clean_and_the_hash_seed_fixed(
    any_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLROOM_SECRET", "xyzzy")
    source = "import os\nprint('xyzzy' in str(os.environ), hash('a'))"
    first, second = any_sandbox.run(source), any_sandbox.run(source)
    assert first.stdout == second.stdout and first.stdout.startswith(b"False ")


def test_programs_do_not_run_as_root(any_sandbox: Sandbox) -> None:
    assert any_sandbox.run("import os\nprint(os.getuid() == 0, os.geteuid() == 0)").stdout == b"False False\n"


def test_an_endless_loop_is_out_of_time(any_sandbox: Sandbox) -> None:
    outcome = any_sandbox.run("while True: pass", limits=Limits(cpu_seconds=1, wall_seconds=20))
    assert outcome.timed_out and outcome.started and outcome.seconds < 15


def test_a_sleeper_is_out_of_time(any_sandbox: Sandbox) -> None:
    outcome = any_sandbox.run("import time\ntime.sleep(600)", limits=Limits(wall_seconds=0.5))
    assert outcome.timed_out and outcome.exit_code is None and outcome.seconds < 10


def test_a_memory_bomb_ends_in_a_memory_error(any_sandbox: Sandbox) -> None:
    outcome = any_sandbox.run("x = bytearray(2 << 30)", limits=QUICK)
    assert outcome.exit_code == 1 and b"MemoryError" in outcome.stderr


def test_a_fork_bomb_is_bounded_and_gone(any_sandbox: Sandbox) -> None:
    mark = f"31{secrets.randbelow(10**9)}"
    source = (
        "import os, sys\nalive = 0\n"
        "while alive < 500:\n"
        "    try:\n        pid = os.fork()\n"
        "    except OSError:\n        break\n"
        f"    if pid == 0:\n        os.execv('/bin/sleep', ['sleep', '{mark}'])\n"
        "    alive += 1\n"
        "print(alive, flush=True)\n"
    )
    outcome = any_sandbox.run(source, limits=Limits(processes=20, wall_seconds=20))
    assert 0 < int(outcome.stdout) < 20
    assert _running(mark) == []


def test_a_true_fork_bomb_ends_at_the_time_limit(any_sandbox: Sandbox) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    outcome = any_sandbox.run(source, limits=Limits(cpu_seconds=1, wall_seconds=2, processes=16))
    assert outcome.seconds < 15 and outcome.exit_code != 0


@pytest.mark.parametrize("detach", [False, True])
def test_a_sleeping_grandchild_is_gone_after_the_time_limit(any_sandbox: Sandbox, detach: bool) -> None:
    mark = f"32{secrets.randbelow(10**9)}"
    source = (
        "import os, subprocess, sys, time\n"
        f"script = \"import subprocess; subprocess.run(['sleep', '{mark}'])\"\n"
        f"subprocess.Popen([sys.executable, '-S', '-c', script], start_new_session={detach})\n"
        "time.sleep(600)\n"
    )
    outcome = any_sandbox.run(source, limits=Limits(wall_seconds=1.5))
    assert outcome.timed_out
    assert _running(mark) == []


def test_what_a_finished_program_leaves_behind_does_not_hold_up_the_result(any_sandbox: Sandbox) -> None:
    mark = f"33{secrets.randbelow(10**9)}"
    source = f"import subprocess\nsubprocess.Popen(['sleep', '{mark}'], start_new_session=True)\nprint('done')"
    outcome = any_sandbox.run(source, limits=Limits(wall_seconds=30))
    assert outcome.stdout == b"done\n" and outcome.exit_code == 0 and outcome.seconds < 15
    assert _running(mark) == []


@pytest.mark.parametrize("stream", [1, 2])
def test_a_flood_of_output_is_cut_off(any_sandbox: Sandbox, stream: int) -> None:
    outcome = any_sandbox.run(f"import os\nwhile True: os.write({stream}, b'x' * 4096)", limits=QUICK)
    assert outcome.flooded and not outcome.timed_out
    assert len(outcome.stdout) + len(outcome.stderr) < QUICK.output_bytes + (1 << 17)


def test_files_cannot_grow_beyond_the_limit(any_sandbox: Sandbox) -> None:
    source = "with open('big', 'wb') as f:\n    for _ in range(64): f.write(b'x' * (1 << 20))\nprint('written')"
    assert b"written" not in any_sandbox.run(source, limits=Limits(file_bytes=8 << 20)).stdout


def test_a_program_that_is_no_python_started_and_failed(any_sandbox: Sandbox) -> None:
    outcome = any_sandbox.run("def (")
    assert outcome.exit_code == 1 and b"SyntaxError" in outcome.stderr


# --- what isolation adds -----------------------------------------------------------------------------------------


def test_host_files_cannot_be_read(isolating: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("xyzzy")
    tmp_path.chmod(0o755)
    for file in ("/etc/passwd", "/etc/machine-id", str(secret), str(Path(__file__)), f"/proc/{os.getpid()}/environ"):
        here = Path(file).read_bytes()[:64] if os.path.exists(file) else b"nothing"
        for source in (
            f"print(open({file!r}).read())",
            f"import os\nos.symlink({file!r}, 'l')\nprint(open('l').read())",
        ):
            outcome = isolating.run(source)
            assert here not in outcome.stdout, file
            assert outcome.exit_code == 1, file


def test_other_processes_cannot_be_seen_or_signalled(isolating: Sandbox) -> None:
    mine = os.getpid()
    source = (
        "import os\n"
        "def there(attempt):\n    try:\n        return attempt()\n    except OSError:\n        return False\n"
        f"print(there(lambda: open('/proc/{mine}/status').read()), there(lambda: os.kill({mine}, 0)),"
        f" there(lambda: os.kill({mine}, 9)), there(lambda: os.killpg({os.getpgid(0)}, 9)))\n"
    )
    assert mine > 10, "or the number could be one of the sandbox's own"
    assert isolating.run(source).stdout.split() == [b"False"] * 4


def test_killing_the_parent_and_everything_else_harms_nobody_here(isolating: Sandbox) -> None:
    source = "import os\nfor target in (os.getppid(), -1):\n    try: os.kill(target, 9)\n    except OSError: pass\n"
    bystander = subprocess.Popen(["sleep", "60"], user=NOBODY if os.getuid() == 0 else None)
    try:
        isolating.run(source)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_memory_of_other_processes_is_out_of_reach(isolating: Sandbox) -> None:
    bystander = subprocess.Popen(["sleep", "60"], user=NOBODY if os.getuid() == 0 else None)
    source = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"print(libc.ptrace(16, {bystander.pid}, None, None))\n"
        f"try:\n    open('/proc/{bystander.pid}/mem', 'rb').close()\n    print('in')\n"
        "except OSError:\n    print('out')\n"
    )
    try:
        assert isolating.run(source).stdout.split() in ([b"-1", b"out"], [])  # [] where ptrace ends the program
    finally:
        bystander.kill()
        bystander.wait()


def test_the_environment_of_visible_processes_holds_no_secret(
    isolating: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLROOM_SECRET", "xyzzy")
    source = (
        "import os\nseen = repr(os.environ).encode()\n"
        "try: places = os.listdir('/proc')\nexcept OSError: places = [str(os.getppid()), 'self', '1']\n"
        "for p in places:\n"
        "    try: seen += open(f'/proc/{p}/environ', 'rb').read()\n"
        "    except OSError: pass\n"
        "print(b'PATH' in seen, b'xyzzy' in seen)\n"
    )
    assert isolating.run(source).stdout == b"True False\n"


def test_the_network_is_out_of_reach(isolating: Sandbox) -> None:
    name = f"stillroom-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        datagrams.bind(("127.0.0.1", 0))
        abstract.bind("\0" + name)
        abstract.listen()
        for listener in (server, datagrams, abstract):
            listener.settimeout(0)
        source = (
            "import socket\ndef tried(attempt):\n    try:\n        attempt()\n    except OSError as error:\n"
            "        print(type(error).__name__)\n"
            f"tried(lambda: socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5))\n"
            "tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', "
            f"('127.0.0.1', {datagrams.getsockname()[1]})))\n"
            f"tried(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r}))\n"
        )
        isolating.run(source)
        for listener in (server, abstract):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)


@pytest.mark.parametrize("place", ["/usr/evil", "/evil", "/program.py", "/proc/sys/kernel/hostname", "/dev/evil"])
def test_nothing_outside_the_scratch_folder_can_be_written(isolating: Sandbox, place: str) -> None:
    isolating.run(f"open({place!r}, 'w').write('x')\nprint('written')")
    assert not os.path.exists(place) or place.startswith("/proc")
    if place.startswith("/proc"):
        assert Path(place).read_text().strip() != "x"


def test_what_it_writes_to_tmp_is_not_here(isolating: Sandbox) -> None:
    name = f"/tmp/stillroom-evil-{os.getpid()}"
    isolating.run(f"open({name!r}, 'w').write('x')")
    assert not os.path.exists(name)


def test_privileges_cannot_be_won_back(isolating: Sandbox) -> None:
    source = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.unshare(0x10000000), libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))\n"
        "try:\n    os.setuid(0)\n    print('root')\nexcept OSError:\n    print('no')\n"
    )
    outcome = isolating.run(source)
    if outcome.stdout.split()[:1] == [b"0"]:
        pytest.skip("this bubblewrap is too old to forbid nested namespaces")
    assert outcome.stdout.split() == [b"-1", b"-1", b"no"]


# --- the choice --------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_isolates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(choice, "find_executable", lambda: None)
    monkeypatch.setattr(choice, "find_library", lambda: None)
    monkeypatch.delenv(choice.ALLOW_UNSAFE, raising=False)
    find_sandbox.cache_clear()
    yield
    find_sandbox.cache_clear()


def test_without_a_sandbox_it_fails_closed_and_says_what_to_install(nothing_isolates: None) -> None:
    with pytest.raises(SandboxUnavailableError, match="apt-get install -y bubblewrap"):
        find_sandbox()


def test_unsafe_running_needs_an_explicit_word(
    nothing_isolates: None, rlimits: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = find_sandbox(allow_unsafe=True)
    assert not allowed.isolates
    with pytest.raises(SandboxUnavailableError):
        find_sandbox(allow_unsafe=False)
    monkeypatch.setenv(choice.ALLOW_UNSAFE, "1")
    assert not find_sandbox().isolates


def test_a_broken_bubblewrap_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'no permission to create a namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(choice, "find_executable", lambda: str(broken))
    monkeypatch.setattr(choice, "find_library", lambda: None)
    find_sandbox.cache_clear()
    with pytest.raises(SandboxUnavailableError, match=r"bubblewrap \("):
        find_sandbox(allow_unsafe=False)
    find_sandbox.cache_clear()


def test_the_working_one_is_chosen(bubblewrap: Sandbox) -> None:
    find_sandbox.cache_clear()
    assert find_sandbox().isolates and find_sandbox().name.startswith("bubblewrap")


def test_sandlock_is_next(sandlock: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_executable", lambda: None)
    find_sandbox.cache_clear()
    assert find_sandbox().isolates and find_sandbox().name.startswith("sandlock")
    find_sandbox.cache_clear()


def test_one_that_says_it_isolates_and_does_not_is_found_out(rlimits: Sandbox) -> None:
    class Pretends:
        name, isolates, run = "pretends", True, staticmethod(rlimits.run)

    reason = choice._fault(Pretends())
    assert reason is not None and ("got through" in reason or "could write" in reason)


def test_several_threads_may_run_programs(any_sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda n: any_sandbox.run(f"print({n})").stdout, range(12)))
    assert outcomes == [f"{n}\n".encode() for n in range(12)]
