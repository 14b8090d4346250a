"""A server and its children: started, announced once, and gone as a whole."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backtest.errors import ConfigError
from pipelines.server import answers, serve

ADDRESS = "127.0.0.1"
PATIENCE = 120.0  # seconds
# Listens, and starts a child that writes its id and would live on.
SERVER = """
import os, subprocess, sys, http.server
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("child.new", "w") as file:
    file.write(str(child.pid))
os.replace("child.new", "child")
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(3)
"""
PARENT = """
import sys
from pathlib import Path
from pipelines.server import serve
command = [sys.executable, "server.py", sys.argv[1]]
ready = lambda: print("ready", flush=True)
port = int(sys.argv[1])
code = serve(command, "127.0.0.1", port, ready, environment={}, folder=Path("."))
print("code", code)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_ends_the_server_and_its_children(tmp_path, number, ignored):
    (tmp_path / "server.py").write_text(SERVER)
    port = free_port()

    def ignore_interrupts():
        if ignored:  # as a shell starts background jobs
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(port)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ignore_interrupts,
    )
    assert parent.stdout.readline() == "ready\n"
    child = int((tmp_path / "child").read_text())
    assert lives(child)
    os.kill(parent.pid, number)
    rest, _ = parent.communicate(timeout=PATIENCE)
    assert (rest, parent.returncode) == ("code 0\n", 0)
    deadline = time.monotonic() + PATIENCE
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lives(child)
    assert not answers(ADDRESS, port)


def test_a_server_that_fails_is_not_announced(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    said = []
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]
    code = serve(
        command,
        ADDRESS,
        free_port(),
        lambda: said.append(1),
        environment={},
        folder=tmp_path,
    )
    assert (code, said) == (7, [])


def test_a_taken_port_is_an_error(tmp_path):
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}: something else listens"):
            serve([], ADDRESS, port, lambda: None, environment={}, folder=tmp_path)
