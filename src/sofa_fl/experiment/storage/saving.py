"""How a round is saved and a run restored: what a checkpoint holds besides a method's state.

A round is done once its checkpoint is on disk: only then is it recorded in `events.jsonl` and
told to observers, so a kill costs the round under way and nothing that was said to be done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError
from sofa_fl.experiment.storage.run_folder import Event, RunFolder
from sofa_fl.guard import Register

LIGHT = 200_000_000  # bytes that are written in a small part of the time a round takes


@dataclass(frozen=True, slots=True)
class Progress:
    """What of a run is no method's state, in a checkpoint.

    Attributes:
        events_length, events_sum: `events.jsonl` up to the round before, and its checksum.
        event: The round's own line.
    """

    events_length: int
    events_sum: int
    event: str
    seconds: float
    samples_trained: int
    bytes_down: int
    bytes_up: int
    fingerprint: str
    register: Register

    def restore_events(self, folder: RunFolder) -> None:
        """Put `events.jsonl` back to where it was after the round."""
        folder.cut(self.events_length, self.events_sum)
        folder.append(json.loads(self.event))


def is_saved(config: Config, round: int) -> bool:
    """Whether there is to be a checkpoint of a round."""
    return round % config.save_every == 0 or round == config.rounds


def is_light(packed: checkpoint.Packed) -> bool:
    """Whether a checkpoint is waited for; on a GPU a round takes no longer than to write it."""
    return not packed.on_gpu and packed.nbytes <= LIGHT


def save(folder: RunFolder, round: int, packed: checkpoint.Packed, keep: int, event: Event) -> None:
    """Write the checkpoint of a round over the oldest, if others are left; then record it."""
    saved = folder.saved_rounds()
    spare = folder.checkpoint(saved[0]) if len(saved) >= max(keep, 2) else None
    checkpoint.save(folder.checkpoint(round), packed, spare)
    folder.forget(keep)
    folder.append(event)


def restore_newest(
    folder: RunFolder, config: Config, restore: Callable[[RunFolder, int], None]
) -> tuple[int | None, str]:
    """Restore the newest state that is whole: after which round, and what to say of the others.

    None where there was none yet: the run is to begin anew.
    """
    saved = folder.saved_rounds()
    recorded = [round for round in range(folder.num_recorded()) if is_saved(config, round)]
    problems = []
    if recorded and (not saved or recorded[-1] > saved[-1]):
        problems.append(f"the checkpoint {folder.checkpoint(recorded[-1])} is missing")
    for round in reversed(saved):
        try:
            restore(folder, round)
        except DamagedError as error:
            problems.append(str(error))
            continue
        folder.forget_after(round)  # else the whole one would be the first to be written over
        return round, _sentence(problems, f"going on from round {round}")
    if max([*recorded, *saved], default=0) > 0:
        told = _sentence(problems, f"begin anew with 'sofa-fl run {folder.config_file} --out DIR'")
        raise RunError(f"{folder.path} has no checkpoint left to resume from: {told}")
    return None, _sentence(problems, "beginning anew")


def _sentence(problems: list[str], consequence: str) -> str:
    return "; ".join([*problems, consequence]) if problems else ""
