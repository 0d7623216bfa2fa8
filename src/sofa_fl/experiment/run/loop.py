"""The only round loop: every method, new or resumed, on every engine."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sofa_fl.data.base import Arrays, FederatedData
from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import dealt_out
from sofa_fl.engine.base import Engine
from sofa_fl.engine.faulty import FaultyEngine
from sofa_fl.engine.select import Pick, pick_engine
from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config, config_to_dict, load_config
from sofa_fl.experiment.run.observers import Observer, tell
from sofa_fl.experiment.run.records import describe, summarize
from sofa_fl.experiment.scoring.metrics import Examiner
from sofa_fl.experiment.scoring.own_metrics import Metric, OwnMetrics
from sofa_fl.experiment.serving.serving import serving_of, state_type
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.checkpoint_writer import Writer
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import Event, RunFolder, fresh_folder
from sofa_fl.experiment.storage.saving import Progress, is_light, is_saved, restore_newest, save
from sofa_fl.experiment.tracking.trackers import watched
from sofa_fl.federation import Federation
from sofa_fl.methods.base import Method, Notes, View
from sofa_fl.methods.registry import make_method
from sofa_fl.models.networks import NetworkFactory, network_factory
from sofa_fl.sharing import traffic
from sofa_fl.topology.tree import Tree
from sofa_fl.topology.tree.edits import edit_from_json

OWN = "own"  # what data are called that a user brings along, if by no other name


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended: where it is, its summary, and what its method shows."""

    run: Path
    summary: dict[str, Any]
    view: View

    @property
    def tree(self) -> Tree:
        return self.view.tree


def run(
    config: Config | None = None,
    *,
    data: FederatedData | tuple[Arrays, Arrays] | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Run an experiment into a new run folder.

    Args:
        config: What to run; the default is the paper's experiment.
        data: Own data in place of `config.data.name`: arrays to be dealt out as `config.data`
            says, or data already dealt out to clients.
        network: A function that makes an own network, in place of `config.model`.
        method: An own method, in place of `config.method`.
        metrics: Own metrics by name: functions of outputs and targets, NumPy arrays, that give a
            number; in every round, of what each client uses, on its own test samples.
        observers: Called with every event as it happens; one that fails is reported and left out.
    """
    config = config or Config()
    own = Own(data, network, method, metrics)
    if data is not None and config.data.name == DataConfig().name:
        config = replace(config, data=replace(config.data, name=OWN))
    with Experiment(config, own) as experiment:
        name = f"{config.method}-{Path(config.data.name).name}-{config.seed}"
        path = Path(config.out).expanduser() if config.out else fresh_folder(name)
        config = replace(experiment.config, out=str(path))
        folder = RunFolder.create(path, config_to_dict(config))
        return experiment.begin(folder, watched(config.track, observers))


def resume(
    path: Path | str,
    *,
    data: FederatedData | tuple[Arrays, Arrays] | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Continue a run from its last checkpoint, to the same end as if it had not stopped.

    Where the last one is damaged or missing, the one before serves; the first event says so.
    A run on own data, network or method needs them again: none of them is in the folder. Own
    metrics that are not given again are no longer computed, which is told.
    """
    folder = RunFolder.open(Path(path))
    config = replace(load_config(folder.config_file), out=str(path))
    if data is None and config.data.name == OWN:
        raise RunError(
            f"{path} was made with own data, which are not in the folder; resume it from Python "
            "with sofa_fl.resume(..., data=...)"
        )
    observers = watched(config.track, observers)
    with Experiment(config, Own(data, network, method, metrics)) as experiment:
        last, note = restore_newest(folder, config, experiment.restore)
        if last is None:  # stopped before the warm-up was done
            return experiment.begin(folder, observers, note)
        experiment.announce(folder, last, observers, note)
        return experiment.go_on(folder, last, observers)


@dataclass(frozen=True, slots=True)
class Own:
    """What a user brings along."""

    data: FederatedData | tuple[Arrays, Arrays] | None = None
    network: NetworkFactory | None = None
    method: Method[Any] | None = None
    metrics: Mapping[str, Metric] | None = None
    engine: Engine | None = None  # whose clients may well not answer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.__slots__ if getattr(self, name) is not None)


class Experiment:
    """A method, a federation and an engine, from the first round to the last."""

    def __init__(self, config: Config, own: Own) -> None:
        data = dealt_out(config.data, config.seed, own.data)
        shape = tuple(data.train.x.shape[1:])
        factory = own.network or network_factory(config.model, shape, data.num_outputs)
        self.metrics = OwnMetrics(own.metrics, factory)
        if own.engine is None:
            self.pick = pick_engine(config.engine, factory, data, config.local)
            # What was picked is written down: a run goes on as it began, to the same bits.
            config = replace(config, engine=self.pick.name)
        else:
            self.pick = Pick(config.engine, own.engine)
        self.config = config
        self.engine: Engine = self.pick.engine
        if config.faults.are_there:
            self.engine = FaultyEngine(self.engine, config.faults, len(data.clients), config.seed)
        self.fed = Federation(
            data,
            self.engine,
            config.local,
            config.seed,
            config.warmup,
            rounds=config.rounds,
            participation=config.participation,
            lossy=config.faults.are_there or own.engine is not None,
            guard=config.guard,
        )
        self.examiner = Examiner(self.fed)
        self.method: Method[Any] = own.method or make_method(config)
        self.serving = partial(serving_of, own=own.names)
        self.state: Any = None
        self.writer = Writer()
        self.seconds = 0.0
        self.started = time.perf_counter()
        self.fingerprint = self.fed.fingerprint()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the checkpoint under way, also after an error, which then is the one to tell."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.engine.close)
            if kind is not None:
                stack.enter_context(contextlib.suppress(Exception))
            self.writer.wait()

    def announce(
        self, folder: RunFolder, last: int | None, observers: Sequence[Observer], note: str = ""
    ) -> None:
        """Tell observers where the run is, and after which round (None: before the warm-up)."""
        event = {
            "event": "start",
            "run": str(folder.path),
            "round": last,
            "rounds": self.config.rounds,
            "engine": self.pick.name,
            "why": self.pick.why,
            "note": note,
        }
        tell(observers, event)

    def begin(self, folder: RunFolder, observers: Sequence[Observer], note: str = "") -> Result:
        """The warm-up and all rounds, then the summary."""
        folder.clear()
        self.announce(folder, None, observers, note)
        self.state, notes = self.method.init(self.fed)
        self.close_round(folder, self.fed, notes, observers)
        return self.go_on(folder, 0, observers)

    def go_on(self, folder: RunFolder, last: int, observers: Sequence[Observer]) -> Result:
        """The rounds after `last`, then the summary."""
        for round in range(last + 1, self.config.rounds + 1):
            fed = self.enter(round)
            self.examiner.turn_to(fed)
            fed.register.keep(fed.clients)
            self.state, notes = self.method.round(self.hand_over(), fed)
            self.close_round(folder, fed, notes, observers)
        self.writer.wait()
        view, edits, event = self.method.view(self.state), [], {}
        for event in folder.events():
            edits += [edit_from_json(edit) for edit in event["edits"]]
        summary = {
            **summarize(self.config, view, edits, self.examiner, self.elapsed()),
            **({"metrics": event["metrics"]} if "metrics" in event else {}),
            "run": str(folder.path),
        }
        write_text(folder.summary_file, json.dumps(summary, indent=2) + "\n")
        tell(observers, {"event": "end", "summary": summary})
        return Result(folder.path, summary, view)

    def enter(self, round: int) -> Federation:
        """The federation as it is in a round that begins."""
        return self.fed.at(round)

    def hand_over(self) -> Any:
        """The state, for the method alone: its models can go while new ones are made."""
        state, self.state = self.state, None
        return state

    def close_round(
        self, folder: RunFolder, fed: Federation, notes: Notes, observers: Sequence[Observer]
    ) -> None:
        """Score a round and save the state; then record the round and tell of it."""
        view, round = self.method.view(self.state), fed.round
        fed.count_shared(*traffic(view.tree, view.shared.pools, fed.owned))
        event = describe(view, notes, fed, self.examiner, self.config.rounds, self.elapsed())
        event |= self.metrics.measure(view, fed)
        self.writer.wait()
        if not is_saved(self.config, round):
            folder.append(event)
            tell(observers, event)
            return
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # the writer waits for nothing that is computed later
        packed = checkpoint.pack(
            progress=self.progress(folder, event), state=self.state, serving=self.serving(fed)
        )
        is_awaited = is_light(packed)
        work = partial(save, folder, round, packed, self.config.keep, event)
        del packed
        self.writer.start(work, partial(tell, observers, event))
        if is_awaited:
            self.writer.wait()

    def progress(self, folder: RunFolder, event: Event) -> Progress:
        meter = self.fed.meter
        return Progress(
            *folder.mark(),
            json.dumps(event),
            event["seconds"],
            meter.samples_trained,
            meter.bytes_down,
            meter.bytes_up,
            self.fingerprint,
            self.fed.register,
        )

    def restore(self, folder: RunFolder, round: int) -> None:
        """The state after `round`; the meters and the events go back to there too."""
        path = folder.checkpoint(round)
        checkpoint.check(path)
        progress = checkpoint.load(path, "progress", Progress)
        if progress.fingerprint != self.fingerprint:
            raise RunError(f"{folder.path} was made with other data or another network")
        device = str(self.fed.initial().device)
        self.state = checkpoint.load(path, "state", state_type(self.method), device)
        progress.restore_events(folder)
        if round < self.config.rounds:
            self.metrics.warn_of_missing(json.loads(progress.event))
        self.seconds = progress.seconds
        meter = self.fed.meter
        meter.samples_trained = progress.samples_trained
        meter.bytes_down, meter.bytes_up = progress.bytes_down, progress.bytes_up
        self.fed = replace(self.fed, register=progress.register)
        self.examiner.turn_to(self.fed.at(round))  # should there be no round after it

    def elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.started
