"""Run jobs, each in a folder that is named after its configuration, one by one or side by side.

So a changed configuration gets a new folder, a run that has ended is not repeated, and one that was
stopped is resumed. Jobs side by side run in processes that take one after another, so that each
starts up once. This pays on a GPU, which one run leaves half idle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

from sofa_fl.errors import RunError, SofaError
from sofa_fl.experiment.run.config import Config, config_to_dict
from sofa_fl.experiment.run.launch import run_once
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import at_end, guarded
from sofa_fl.report.page import REPORT, write_run_report

RUNS = Path("runs") / "reproduce"
# Keys that do not change a result.
IDLE = ("out", "keep", "save_every", "track", "title", "preset", "own")
PATIENCE = 20.0  # seconds that a process has to end
PASSED_ON = ("event", "round", "summary")  # the part of an event that the parent gets


@dataclass(frozen=True, slots=True)
class Job:
    """A run: its folder, its title on the screen, its configuration, and how many checkpoints of it
    are kept, with a report.
    """

    folder: Path
    title: str
    config: Config
    keep: int = 0


Summary = dict[str, Any]
OnEvent = Callable[[int, Event], None]  # the number of the job, and the event
OnSummary = Callable[[Job, Summary], None]


def make_job(config: Config, title: str, runs: Path = RUNS, *, is_kept: bool = False) -> Job:
    """A job in the folder that belongs to its configuration.

    If it is kept, its folder is named by the title, so that its model and report are easy to find.
    """
    plain = {key: value for key, value in config_to_dict(config).items() if key not in IDLE}
    plain["data"] = {**plain["data"], "dir": None}
    mark = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{config.method}-{Path(config.data.name).name}-{config.seed}"
    folder = runs / f"{file_name(title) if is_kept else name}-{mark}"
    return Job(folder, title, replace(config, out=str(folder)), int(is_kept))


def file_name(title: str) -> str:
    """A title as a name that is valid in every file system and shell; long ones are cut."""
    return re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", title.replace(", ", ","))[:100]


def run_jobs(
    jobs: Iterable[Job],
    on_event: OnEvent,
    num_processes: int = 1,
    on_summary: OnSummary = lambda job, summary: None,
) -> list[Summary]:
    """The summaries of all jobs, in order; equal jobs run once."""
    jobs = list(jobs)
    unique = list({job.folder: job for job in jobs}.values())

    def observe(index: int, event: Event) -> None:
        if event["event"] == "done":
            on_summary(unique[index], event["summary"])
        on_event(index, event)

    if num_processes > 1 and len(unique) > 1:
        from sofa_fl.jobs.runner import run_side_by_side

        found = run_side_by_side(unique, min(num_processes, len(unique)), observe)
    else:
        found = [run_job(job, index, observe) for index, job in enumerate(unique)]
    by_folder = {job.folder: summary for job, summary in zip(unique, found)}
    return [by_folder[job.folder] for job in jobs]


def run_job(job: Job, index: int, on_event: OnEvent) -> Summary:
    """The summary of a job: read if its run has ended, else run or resumed now."""

    def observe(event: Event) -> None:
        on_event(index, event)

    summary = run_once(job.config, observers=[observe])
    tidy(RunFolder(job.folder), summary, job.keep)
    on_event(index, {"event": "done", "summary": summary})
    return summary


def tidy(folder: RunFolder, summary: Summary, keep: int) -> None:
    """Delete what a run that has ended no longer needs: its checkpoints, by far the largest part.

    A run that is kept has its last checkpoints, from which models are exported, and a report.
    """
    folder.error_file.unlink(missing_ok=True)  # of an earlier attempt
    if not keep:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        return
    folder.forget(keep)
    if not (folder.path / REPORT).exists():
        (write,) = guarded([at_end(write_run_report)])
        write({"event": "end", "summary": summary})


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
