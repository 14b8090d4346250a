"""A server with its own processes: started in a session of its own, stopped as a whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from backtest.errors import ConfigError

ASK_EVERY = 0.25  # seconds between two looks at the port
PATIENCE = 20.0  # seconds a server has to end after each signal
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def serve(
    command: Sequence[str],
    address: str,
    port: int,
    ready: Callable[[], None],
    *,
    environment: Mapping[str, str],
    folder: Path,
) -> int:
    """Run a server until it ends or this process is told to stop; return its exit code.

    Ctrl-C and SIGTERM stop the server and all its children, and count as 0.

    Args:
        command: starts it in the foreground.
        address: where it listens.
        port: its port.
        ready: called once when the port answers.
        environment: added to this process's own.
        folder: its working folder.

    Raises:
        ConfigError: the port is taken.
    """
    if answers(address, port):
        raise ConfigError(f"--port {port}: something else listens there; choose another port")
    # an ignored SIGINT, as in a background job, would be inherited: the server could not be stopped
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop_like_ctrl_c)
    # a session of its own, so that Ctrl-C reaches it once, from here
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, cwd=folder, start_new_session=True
    )
    try:
        while process.poll() is None and not answers(address, port):
            time.sleep(ASK_EVERY)
        if process.poll() is None:
            ready()
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it
        stop(process)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process group: politely, then firmly."""
    for number in SIGNALS:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + PATIENCE
        while group_lives(process) and time.monotonic() < deadline:
            time.sleep(ASK_EVERY)


def group_lives(process: subprocess.Popen[Any]) -> bool:
    """Return whether any process of the group is left."""
    process.poll()  # a finished child counts until it was waited for
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def answers(address: str, port: int) -> bool:
    """Return whether something listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((address, port)) == 0


def stop_like_ctrl_c(number: int, frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM as Ctrl-C."""
    del number, frame
    raise KeyboardInterrupt
