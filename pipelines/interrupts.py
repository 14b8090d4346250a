"""Ctrl-C that cannot get lost.

An exception that a signal raises can vanish: in a finaliser, or in a library that ignores errors
while it closes a connection. The interpreter notes every signal, whoever handles it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Interrupted = Callable[[], bool]


@contextmanager
def noted() -> Iterator[Interrupted]:
    """Yield a function that says whether SIGINT or SIGTERM has arrived within the context.

    Handlers stay as they are. Signals belong to the main thread: elsewhere it is never true.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    seen: set[int] = set()

    def arrived() -> bool:
        with suppress(BlockingIOError):  # nothing new
            seen.update(os.read(reader, 4096))
        return not seen.isdisjoint((signal.SIGINT, signal.SIGTERM))

    try:
        yield arrived
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(reader)
        os.close(writer)
