"""Starting the dashboard: a Streamlit server in a process of its own, reachable from this machine only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

STORE_VARIABLE = "STILLROOM_STORE"
"""How the server is told which store to show."""
ADDRESS = "127.0.0.1"
APP = Path(__file__).with_name("app.py")
STOP_SECONDS = 10.0
PORT_TAKEN = 2


def serve(store: Path, port: int, open_browser: bool) -> int:
    """Serve the dashboard of ``store`` until it is stopped (Ctrl+C or SIGTERM); returns the exit status.

    ``port`` 0 takes a free one. A port that another program has is said on stderr, with what to do (status 2).
    """
    try:
        port = check_port(port)
    except OSError as error:
        print(f"{error}", file=sys.stderr)
        return PORT_TAKEN
    environment = {**os.environ, STORE_VARIABLE: str(Path(store).resolve())}
    server = subprocess.Popen(command(port, open_browser), env=environment)
    return _wait(server)


def check_port(port: int) -> int:
    """``port``, or a free one for 0; raises OSError when it cannot be had."""
    with socket.socket() as probe:
        # As the server does: a port whose last user has just ended is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OverflowError:
            raise OSError(f"{port} is not a port: ports go from 1 to 65535") from None
        except OSError as error:
            raise OSError(
                f"port {port} cannot be used ({error.strerror}): another dashboard may be running there; "
                "open it, stop it, or choose another with --port"
            ) from error
        return probe.getsockname()[1]


def command(port: int, open_browser: bool) -> list[str]:
    """The server's command line. What does not change is in ``.streamlit/config.toml`` beside the app."""
    return [
        *(sys.executable, "-m", "streamlit", "run", str(APP)),
        *("--server.address", ADDRESS),
        *("--server.port", str(port)),
        *("--server.headless", "false" if open_browser else "true"),
        *("--browser.serverAddress", ADDRESS),
        *("--browser.gatherUsageStats", "false"),
    ]


def _wait(server: subprocess.Popen[bytes]) -> int:
    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        return server.wait()
    except KeyboardInterrupt:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
