"""Run jobs, each in a folder that is named after its configuration.

So a changed configuration gets a new folder, a run that has ended is not repeated, and one that was
stopped is resumed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sofa_fl.experiment.run.config import Config, config_to_dict
from sofa_fl.experiment.run.launch import run_once
from sofa_fl.experiment.storage.events import Event
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import at_end, guarded
from sofa_fl.report.page import REPORT, write_run_report

RUNS = Path("runs") / "reproduce"
# Keys that do not change a result.
IDLE = ("out", "keep", "save_every", "track", "title", "preset", "own")


@dataclass(frozen=True, slots=True)
class Job:
    """A run: its folder, its title on the screen, its configuration, and whether all is kept."""

    folder: Path
    title: str
    config: Config
    is_kept: bool = False


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
    return Job(folder, title, replace(config, out=str(folder)), is_kept)


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
        from sofa_fl.jobs.processes import run_side_by_side

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
    tidy(RunFolder(job.folder), summary, is_kept=job.is_kept)
    on_event(index, {"event": "done", "summary": summary})
    return summary


def tidy(folder: RunFolder, summary: Summary, *, is_kept: bool) -> None:
    """Delete what a run that has ended no longer needs: its checkpoints, by far the largest part.

    A run that is kept has its last checkpoint, from which models are exported, and a report.
    """
    folder.error_file.unlink(missing_ok=True)  # of an earlier attempt
    if not is_kept:
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        return
    folder.forget(1)
    if not (folder.path / REPORT).exists():
        (write,) = guarded([at_end(write_run_report)])
        write({"event": "end", "summary": summary})
