"""Trial runners: here, or in a pool of spawned processes that lasts as long as the run.

Trials write only their own files and are told nothing but their specification, so where they run
changes no result.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, TypeVar

from backtest.errors import BacktestError
from backtest.sections import Runtime

if TYPE_CHECKING:
    from opencl.trials import Report, Tell

Spec = TypeVar("Spec")
Result = TypeVar("Result")

# One thread each: the pool already fills the cores. Results do not depend on it.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
GRACE = 10.0  # seconds a stopped trial has to reach its next block of updates


@dataclass
class Listeners:
    """Who hears what trials report."""

    _told: list[Tell] = field(default_factory=list)

    @contextmanager
    def listening(self, tell: Tell) -> Iterator[None]:
        """Pass on every report that arrives within the context."""
        self._told.append(tell)
        try:
            yield
        finally:
            self._told.remove(tell)

    def tell(self, report: Report) -> None:
        """Pass on one report."""
        for tell in tuple(self._told):
            tell(report)


class InlineRunner(Listeners):
    """Runs trials in this process: folds one after the other, seeds of a fold side by side."""

    def __enter__(self) -> InlineRunner:
        from opencl import trials

        trials.connect(lambda: False, self.tell)
        return self

    def __exit__(self, *error: object) -> None:
        from opencl import trials

        trials.disconnect()

    def ahead(self, fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> None:
        """Begin nothing: trials run when they are asked for."""

    def imap(self, fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> Iterator[Result]:
        """Yield results in the order of the specifications."""
        from opencl.trials import together

        yield from together(fn, specs)


@dataclass(frozen=True)
class _Begun:
    fn: Callable[..., Any]
    spec: Any
    future: Future[Any]


class ProcessRunner(Listeners):
    """Runs trials in a pool of processes, started when first needed."""

    def __init__(self, workers: int) -> None:
        """Take `workers` processes; none is started yet."""
        super().__init__()
        self._context = multiprocessing.get_context("spawn")  # drivers do not survive a fork
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._begun: list[_Begun] = []

    def __enter__(self) -> ProcessRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ahead(self, fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> None:
        """Begin trials that `imap` will be asked for later, so that no worker waits for a step."""
        self._begun += [_Begun(fn, spec, self._submit(fn, spec)) for spec in specs]

    def imap(self, fn: Callable[[Spec], Result], specs: Iterable[Spec]) -> Iterator[Result]:
        """Yield results in the order of the specifications; the first failure cancels the rest."""
        futures = [self._taken(fn, spec) or self._submit(fn, spec) for spec in specs]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Stop: cancel what waits, ask what runs to stop, end what does not."""
        if self._pool is None:
            return
        self._stop.set()
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.join(GRACE)
            if process.is_alive():
                process.kill()
        self._reports.put(None)
        self._listener.join()
        self._pool = None

    def _taken(self, fn: Callable[..., Any], spec: Any) -> Future[Any] | None:
        """Return the trial if it was begun ahead; each is handed out once."""
        for begun in self._begun:
            if begun.fn is fn and begun.spec == spec:
                self._begun.remove(begun)
                return begun.future
        return None

    def _submit(self, fn: Callable[[Spec], Result], spec: Spec) -> Future[Result]:
        if self._pool is None:
            self._start()
        assert self._pool is not None
        return self._pool.submit(_call, fn, spec)

    def _start(self) -> None:
        self._stop = self._context.Event()
        self._reports = self._context.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._pool = ProcessPoolExecutor(
            self._workers,
            mp_context=self._context,
            initializer=_begin,
            initargs=(ENVIRONMENT, self._stop, self._reports),
        )

    def _listen(self) -> None:
        while (report := self._reports.get()) is not None:
            self.tell(report)


Runner = InlineRunner | ProcessRunner


def runner(settings: Runtime) -> Runner:
    """Return the runner of the `[runtime]` section."""
    chosen = settings.runner
    if chosen == "auto":
        from opencl.devices import select

        chosen = "inline" if select(settings.device).kind == "gpu" else "process"
    return InlineRunner() if chosen == "inline" else ProcessRunner(settings.workers)


def _begin(environment: dict[str, str], stop: Any, reports: Any) -> None:
    """Prepare a worker: environment before torch is loaded, link to its runner, a watch on it."""
    import signal

    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    from opencl import trials

    trials.connect(stop.is_set, reports.put)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    """End with the parent, however it ends: nobody would hear of a result."""
    wait([sentinel])
    os._exit(1)


def _call(fn: Callable[[Spec], Result], spec: Spec) -> Result:
    """Run a trial; an error that cannot travel between processes is told in words."""
    from opencl import trials

    if trials.stopped():  # it waited in the pool's own queue, where nothing can be cancelled
        raise BacktestError("stopped before it began")
    try:
        return fn(spec)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise BacktestError(f"{type(error).__name__}: {error}") from None
        raise
