"""A signal is noted whoever handles it, even when its exception gets lost."""

import contextlib
import os
import signal
import threading

import pytest

from pipelines.interrupts import noted


@pytest.fixture
def handler():
    """SIGINT raises, as in a terminal."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


def test_an_interrupt_whose_exception_is_swallowed(handler):
    with noted() as interrupted:
        assert not interrupted()
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        assert interrupted() and interrupted()  # and it stays so
    with noted() as interrupted:
        assert not interrupted()


def test_other_handlers_and_other_signals(handler):
    signal.signal(signal.SIGINT, lambda *_: None)
    with noted() as interrupted:
        earlier = signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        signal.signal(signal.SIGUSR1, earlier)


def test_other_threads_have_no_signals():
    found = []

    def ask():
        with noted() as interrupted:
            found.append(interrupted())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [False]


def test_an_earlier_listener_is_put_back():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with noted():
            pass
        assert signal.set_wakeup_fd(writer, warn_on_full_buffer=False) == writer
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
