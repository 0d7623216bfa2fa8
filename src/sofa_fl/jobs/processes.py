"""Run jobs side by side, in processes that take one after another, so that each starts up once.

This pays on a GPU, which one run leaves half idle.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import traceback
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any, NoReturn

from sofa_fl.errors import RunError, SofaError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.jobs.runner import Job, OnEvent, Summary, run_job

PATIENCE = 20.0  # seconds that a process has to end
PASSED_ON = ("event", "round", "summary")  # the part of an event that the parent gets


def run_side_by_side(jobs: Sequence[Job], num_processes: int, on_event: OnEvent) -> list[Summary]:
    """The summaries of all jobs, in order; the first error ends all."""
    context = get_context("spawn")  # a GPU cannot be used in a fork
    todo: Any = context.Queue()
    news: Any = context.Queue()
    for item in [*enumerate(jobs), *[None] * num_processes]:
        todo.put(item)
    processes = [
        context.Process(target=_work, args=(todo, news, os.getpid())) for _ in range(num_processes)
    ]
    found: dict[int, Summary] = {}
    try:
        for process in processes:
            process.start()
        while len(found) < len(jobs):
            try:
                index, event = news.get(timeout=1.0)
            except queue.Empty:
                if dead := [p.exitcode for p in processes if p.exitcode]:
                    raise RunError(
                        f"a process ended with exit code {dead[0]}; "
                        "repeat the command with fewer --jobs to continue"
                    ) from None
                continue
            match event["event"]:
                case "failed":
                    raise RunError(f"{jobs[index].title}: {event['message']}")
                case "done":
                    found[index] = event["summary"]
            on_event(index, event)
    finally:
        for process in processes:
            if process.is_alive() and len(found) < len(jobs):
                process.terminate()
        for process in processes:
            if process.pid is not None:
                process.join(PATIENCE)
            if process.is_alive():
                process.kill()
        todo.cancel_join_thread()
    return [found[index] for index in range(len(jobs))]


def _work(todo: Any, news: Any, parent: int) -> None:
    """Take jobs until there are none, or one fails, or the parent ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with contextlib.suppress(KeyboardInterrupt):  # which may also come while a failure is told
        signal.signal(signal.SIGTERM, _stop)
        try:
            _take(todo, news, parent)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to end in order


def _take(todo: Any, news: Any, parent: int) -> None:
    def tell(index: int, event: Event) -> None:
        if os.getppid() != parent:  # it was killed, so nobody would use the rest
            _stop()
        news.put((index, {key: event[key] for key in PASSED_ON if key in event}))

    while (item := todo.get()) is not None:
        index, job = item
        try:
            run_job(job, index, tell)
        except Exception as error:
            news.put((index, {"event": "failed", "message": failure(job, error)}))
            return


def failure(job: Job, error: Exception) -> str:
    """What to tell about a job that failed; if it is a bug, where its traceback was written."""
    if isinstance(error, SofaError):
        return str(error)
    told = "".join(traceback.format_exception(error))
    path = RunFolder(job.folder).error_file
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        write_text(path, told)
    except (OSError, RunError):
        return f"\n{told}"
    # Of several lines, the first: CUDA's errors end with advice on how to debug them.
    (first, *_) = traceback.format_exception_only(error)[-1].splitlines()
    return f"{first}; the traceback is in {path}"


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
