"""The server's process: where it listens, what it is told, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from dashboard import serve as serving
from dashboard.serve import ADDRESS, APP, PORT_TAKEN, check_port, command, serve

ROOT = Path(__file__).resolve().parents[2]


def test_a_taken_port_is_said_with_what_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind((ADDRESS, 0))
        other.listen()
        port = other.getsockname()[1]
        assert serve(tmp_path, port, open_browser=False) == PORT_TAKEN
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and f"port {port}" in said and "--port" in said


@pytest.mark.parametrize("port", [70_000, -1])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(OSError, match="not a port"):
        check_port(port)


def test_port_zero_takes_a_free_one() -> None:
    assert check_port(0) > 1023


def test_it_listens_on_this_machine_only_and_reports_nothing() -> None:
    line = command(8501, open_browser=False)
    options = dict(zip(line[5::2], line[6::2], strict=True))
    assert options["--server.address"] == "127.0.0.1" and options["--browser.gatherUsageStats"] == "false"
    assert options["--server.headless"] == "true"
    assert dict(zip(*[iter(command(1, open_browser=True)[5:])] * 2, strict=True))["--server.headless"] == "false"
    settings = tomllib.loads((APP.parent / ".streamlit" / "config.toml").read_text())
    assert settings["server"]["address"] == "127.0.0.1" and settings["browser"]["gatherUsageStats"] is False
    assert settings["server"]["enableXsrfProtection"] is True and settings["server"]["enableCORS"] is True
    assert settings["client"]["showErrorDetails"] == "none"


def test_starting_it_loads_no_streamlit(tmp_path: Path) -> None:
    code = "import sys, dashboard.serve; sys.exit('streamlit' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_stopped(tmp_path: Path, stop: signal.Signals) -> None:
    port = check_port(0)
    # A shell that starts the tests in the background lets its children ignore SIGINT.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    serve = f"import sys, pathlib, dashboard.serve as s; sys.exit(s.serve(pathlib.Path('x'), {port}, False))"
    code = f"{heard}; {serve}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert answers(port, until=time.monotonic() + 60, process=process)
        assert only_local(port)
    finally:
        process.send_signal(stop)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "Traceback" not in error
    assert not answers(port, until=time.monotonic(), process=None)


def answers(port: int, *, until: float, process: subprocess.Popen[str] | None) -> bool:
    """Whether the server says it is well before the time is over."""
    while process is None or process.poll() is None:
        try:
            with contextlib.closing(http.client.HTTPConnection(ADDRESS, port, timeout=5)) as connection:
                connection.request("GET", "/_stcore/health")
                return connection.getresponse().status == 200
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
    return False


def only_local(port: int) -> bool:
    """Whether the listening socket is bound to the loopback address (Linux's table of sockets)."""
    listening = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        address, its_port = local.split(":")
        if int(its_port, 16) == port and state == "0A":
            listening.append(address)
    return listening == ["0100007F"]


def test_a_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.2)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert server.stdout is not None and server.stdout.readline() == b"up\n"
    with server.stdout:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert serving._wait(server) == 0
    assert server.returncode == -signal.SIGKILL
