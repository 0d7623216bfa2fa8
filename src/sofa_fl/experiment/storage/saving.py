"""How a round is saved and a run restored: everything that a checkpoint holds but a method's state.

A round is done once its checkpoint is on disk: only then is it recorded in `events.jsonl` and
observers are called, so that a kill costs the round under way and nothing that was reported as
done.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.preprocess import Preprocessing, TargetScaling
from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.federation import Federation
from sofa_fl.guard import Register
from sofa_fl.methods.method import Method


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run has come, beside its method's state.

    Attributes:
        event: The round's line of `events.jsonl`.
        spent: What clients' answers have cost of their privacy, as `Budgets.saved` gives it.
        events_length, events_sum: Of 0.1.0; not used.
    """

    event: str
    seconds: float
    samples_trained: int
    bytes_down: int
    bytes_up: int
    fingerprint: str
    register: Register
    spent: tuple[tuple[int, str, float, float, int], ...] = ()
    events_length: int = 0
    events_sum: int = 0

    def restore_events(self, folder: RunFolder, round: int) -> None:
        """Put `events.jsonl` back to where it was after the round."""
        folder.cut(round)
        folder.append(json.loads(self.event))


@dataclass(frozen=True, slots=True)
class Serving:
    """What it takes to use a model outside its run; part of every checkpoint.

    Attributes:
        own: What was passed from Python and is not in the run folder: `data`, `network`, `method`.
        shape: The shape of one input.
        num_outputs: The number of outputs of a network that the configuration makes.
        scale, shift: A network sees `x * scale + shift`.
        clients, priors: The clients, and for each the row that is added to its outputs, if any.
        names: What the clients are called, if they have names.
        preprocessing: What is done to raw rows first.
        target_scaling: In a regression, how targets were scaled; outputs are scaled back.
    """

    own: tuple[str, ...]
    shape: tuple[int, ...]
    num_outputs: int
    scale: float
    shift: float
    clients: tuple[int, ...]
    priors: NDArray[np.float32]
    names: tuple[str, ...] = ()
    preprocessing: Preprocessing | None = None
    target_scaling: TargetScaling | None = None


@dataclass(frozen=True, slots=True)
class MeanInputs:
    """What tells whose inputs a newcomer's are like; part of every checkpoint.

    Attributes:
        clients: The clients.
        sizes: How many samples each trains on.
        step: The distance of the entries of an input that `means` has; 1 is all of them.
        means: A row per client, its mean input; without columns in a deployment, whose server
            knows no inputs.
    """

    clients: tuple[int, ...]
    sizes: tuple[int, ...]
    step: int
    means: NDArray[np.float32]


def mean_inputs_of(fed: Federation, own: tuple[str, ...]) -> MeanInputs:
    """What to save about clients' inputs in a round."""
    sizes = tuple(fed.present.sizes.values())
    if "engine" in own or fed.privacy is not None:
        means, step = np.zeros((len(fed.clients), 0), dtype=np.float32), 1
    else:
        means, step = fed.present.mean_inputs, fed.present.step
    return MeanInputs(tuple(fed.clients), sizes, step, means)


def serving_of(fed: Federation, own: tuple[str, ...]) -> Serving:
    """What to save about a federation in a round."""
    train = fed.data.train
    return Serving(
        own,
        tuple(train.x.shape[1:]),
        fed.data.num_outputs,
        train.scale,
        train.shift,
        tuple(fed.clients),
        fed.present.prior_rows,
        tuple(fed.data.names[client] for client in fed.clients) if fed.data.names else (),
        fed.data.preprocessing,
        fed.data.target_scaling,
    )


def state_type(method: Method[Any]) -> type[Any]:
    """The type of a method's state, by which a checkpoint is read."""
    hints = typing.get_type_hints(method.init)
    if len(kinds := typing.get_args(hints.get("return"))) != 2:
        raise RunError(
            "to make its runs resumable, a method must annotate init: -> tuple[<State>, Notes]"
        )
    kind: type[Any] = kinds[0]
    return kind


def is_saved(config: Config, round: int) -> bool:
    """Whether a round gets a checkpoint."""
    is_due = config.save_every > 0 and round % config.save_every == 0
    return is_due or round == config.rounds


def save_round(folder: RunFolder, round: int, packed: checkpoint.Packed, keep: int) -> None:
    """Write a round's checkpoint, and keep the newest ones only."""
    checkpoint.save(folder.checkpoint(round), packed)
    folder.forget(keep)


def restore_newest(
    folder: RunFolder, config: Config, restore: Callable[[RunFolder, int], None]
) -> tuple[int | None, str]:
    """Restore the newest intact checkpoint: its round, and a sentence about damaged ones.

    The round is None if there is no checkpoint yet, so that the run starts over.
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
        folder.forget_after(round)  # else the intact one would be the oldest, and be deleted
        return round, _explain(problems, f"continuing from round {round}")
    if max([*recorded, *saved], default=0) > 0:
        why = _explain(problems, f"start over with 'sofa-fl run {folder.config_file} --out DIR'")
        raise RunError(f"{folder.path} has no checkpoint left to resume from: {why}")
    return None, _explain(problems, "starting over")


def _explain(problems: list[str], consequence: str) -> str:
    return "; ".join([*problems, consequence]) if problems else ""
