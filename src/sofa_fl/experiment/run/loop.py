"""The round loop, which every run uses: any method on any engine, new or resumed."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from sofa_fl.data.federate import dealt_out
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.engine.base import Engine
from sofa_fl.engine.faulty import FaultyEngine
from sofa_fl.engine.select import Pick, pick_engine
from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config, OwnPart, check_private_config
from sofa_fl.experiment.run.records import Recorder
from sofa_fl.experiment.run.summary import summarize
from sofa_fl.experiment.scoring.metrics import Examiner
from sofa_fl.experiment.scoring.outputs import ClientOutputs
from sofa_fl.experiment.scoring.own_metrics import Metric, OwnMetrics
from sofa_fl.experiment.scoring.training import r2_notes, training_notes
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.events import R2, Event, edit_from_json, metric_of
from sofa_fl.experiment.storage.frozen_file import write_frozen
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.storage.saving import (
    RunProgress,
    is_saved,
    mean_inputs_of,
    restore_newest,
    save_round,
    serving_of,
    state_type,
)
from sofa_fl.experiment.tracking.observers import Observer, notify
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Method, Notes, View
from sofa_fl.methods.registry import find_method, info_of, make_method
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build, network_factory
from sofa_fl.privacy.private_engine import PrivateEngine
from sofa_fl.sharing import SharingConfig, traffic
from sofa_fl.topology.tree import Tree

OwnData = FederatedData | tuple[Arrays, Arrays]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that has ended: its folder, its summary, and its method's last view."""

    run: Path
    summary: dict[str, Any]
    view: View

    @property
    def tree(self) -> Tree:
        return self.view.tree


@dataclass(frozen=True, slots=True)
class Own:
    """Objects that a caller passes instead of those that the configuration would create."""

    data: OwnData | None = None
    network: NetworkFactory | None = None
    method: Method[Any] | None = None
    metrics: Mapping[str, Metric] | None = None
    engine: Engine | None = None  # one whose clients may not answer

    @property
    def parts(self) -> tuple[OwnPart, ...]:
        """The names of the objects that were passed."""
        return tuple(name for name in get_args(OwnPart) if getattr(self, name) is not None)


def told_ratio(method: Method[Any], sharing: SharingConfig) -> Method[Any]:
    """A method that was passed; one that was made without a ratio of sharing gets the run's."""
    its = getattr(method, "sharing", None)
    if not isinstance(its, SharingConfig) or its.ratio is not None:
        return method
    told = copy.copy(method)
    object.__setattr__(told, "sharing", sharing)  # it may be a frozen dataclass
    return told


class Experiment:
    """A method, a federation and an engine, from the first round to the last."""

    def __init__(self, config: Config, own: Own) -> None:
        is_private = config.privacy.epsilon > 0
        if is_private:
            check_private_config(config, is_deployed=own.engine is not None)
        data = dealt_out(config.data, config.seed, own.data)
        if config.data.standardize_targets and own.engine is None:
            data = data.with_scaled_targets()
        shape = tuple(data.train.x.shape[1:])
        factory = own.network or network_factory(config.model, shape, data.num_outputs)
        self.factory = factory
        self.recorder = Recorder(OwnMetrics(own.metrics, factory) if own.metrics else None)
        if own.engine is None:
            self.pick = pick_engine(config.engine, factory, data, config.local)
            # The choice is recorded, so that a resumed run gives the same bits.
            config = replace(config, engine=self.pick.name)
        else:
            self.pick = Pick(config.engine, own.engine)
        self.config = config
        self.engine: Engine = self.pick.engine
        self.private: PrivateEngine | None = None
        if is_private:
            self.engine = self.private = PrivateEngine(
                self.engine, data, config.privacy, config.local,
                seed=config.seed, rounds=config.rounds, warmup=config.warmup,
            )  # fmt: skip
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
            warmup_participation=config.warmup_participation,
            evaluate=config.evaluate,
            lossy=config.faults.are_there or own.engine is not None or self.private is not None,
            guard=config.guard,
            privacy=self.private,
            has_scores=self.private is None or self.private.scores,
        )
        self.examiner = Examiner(self.fed, ClientOutputs(factory))
        self.info = find_method(config.method) if own.method is None else info_of(type(own.method))
        self.method: Method[Any] = (
            make_method(config) if own.method is None else told_ratio(own.method, config.sharing)
        )
        self.serving = partial(serving_of, own=own.parts)
        self.mean_inputs = partial(mean_inputs_of, own=own.parts)
        self.state: Any = None
        self.seconds = 0.0
        self.started = time.perf_counter()
        self.frozen = FlatNetwork(build(factory, 0)).frozen_digest
        self.fingerprint = f"{self.fed.fingerprint()} {self.frozen}".rstrip()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def announce(
        self, folder: RunFolder, last: int | None, observers: Sequence[Observer], note: str = ""
    ) -> None:
        """Tell observers where the run is, and its last round (None: before the warm-up)."""
        event = {
            "event": "start",
            "run": str(folder.path),
            "round": last,
            "rounds": self.config.rounds,
            "engine": self.pick.name,
            "why": self.pick.why,
            "note": note,
        }
        notify(observers, event)

    def run(self, folder: RunFolder, observers: Sequence[Observer]) -> RunResult:
        """Continue from the newest checkpoint in a folder, or begin if it has none."""
        last, note = restore_newest(folder, self.config, self.restore)
        if last is None:  # new, or stopped before the warm-up was done
            return self.begin(folder, observers, note)
        self.announce(folder, last, observers, note)
        return self.go_on(folder, last, observers)

    def begin(self, folder: RunFolder, observers: Sequence[Observer], note: str = "") -> RunResult:
        """Run the warm-up and all rounds, then write the summary."""
        folder.clear()
        if self.frozen:
            write_frozen(folder.path, self.factory)
        self.announce(folder, None, observers, note)
        self.state, notes = self.method.init(self.fed)
        self.close_round(folder, self.fed, notes, observers)
        return self.go_on(folder, 0, observers)

    def go_on(self, folder: RunFolder, last: int, observers: Sequence[Observer]) -> RunResult:
        """Run the rounds after `last`, then write the summary."""
        for round in range(last + 1, self.config.rounds + 1):
            fed = self.enter(round)
            self.examiner.turn_to(fed)
            fed.register.keep(fed.clients)
            self.state, notes = self.method.round(self.hand_over(), fed)
            self.close_round(folder, fed, notes, observers)
        view, edits, event = self.method.view(self.state), [], {}
        for event in folder.events():
            edits += [edit_from_json(edit) for edit in event["edits"]]

        def on_step(done: int, of: int) -> None:
            notify(observers, {"event": "scoring", "done": done, "of": of})

        summary = {
            **summarize(self.config, self.info, view, edits, self.examiner, self.elapsed, on_step),
            **({"metrics": event["metrics"]} if "metrics" in event else {}),
            "notes": training_notes(event.get("training", {})),
            "run": str(folder.path),
        }
        if metric_of(summary) == R2:
            summary["notes"] += r2_notes(summary["client"])
        write_text(folder.summary_file, json.dumps(summary, indent=2) + "\n")
        notify(observers, {"event": "end", "summary": summary})
        return RunResult(folder.path, summary, view)

    def enter(self, round: int) -> Federation:
        """The federation at the beginning of a round."""
        return self.fed.at(round)

    def hand_over(self) -> Any:
        """Hand over the state, so that its models are freed while the method creates new ones."""
        state, self.state = self.state, None
        return state

    def close_round(
        self, folder: RunFolder, fed: Federation, notes: Notes, observers: Sequence[Observer]
    ) -> None:
        """Score a round and save the state; then record the round and notify observers."""
        view = self.method.view(self.state)
        fed.count_shared(*traffic(view.tree, view.shared.pools, fed.owned))
        line, event = self.recorder.describe(view, notes, self.examiner, self.elapsed())
        if is_saved(self.config, fed.round):
            packed = checkpoint.pack(
                progress=self.progress(line),
                state=self.state,
                serving=self.serving(fed),
                inputs=self.mean_inputs(fed),
            )
            save_round(folder, fed.round, packed, self.config.keep)
        folder.append(line)
        notify(observers, event)

    def progress(self, line: Event) -> RunProgress:
        meter = self.fed.meter
        return RunProgress(
            json.dumps(line),
            line["seconds"],
            meter.samples_trained,
            meter.bytes_down,
            meter.bytes_up,
            self.fingerprint,
            self.fed.register,
            self.private.budgets.saved() if self.private else (),
        )

    def restore(self, folder: RunFolder, round: int) -> None:
        """Restore the state, meters and events as they were after `round`."""
        path = folder.checkpoint(round)
        checkpoint.check_file(path)
        progress = checkpoint.load(path, "progress", RunProgress)
        if progress.fingerprint != self.fingerprint:
            raise RunError(f"{folder.path} was run with other data or another network")
        device = str(self.fed.initial().device)
        self.state = checkpoint.load(path, "state", state_type(self.method), device)
        progress.restore_events(folder, round)
        *_, self.recorder.last_event = folder.events()
        if round < self.config.rounds:
            self.recorder.warn_of_missing()
        self.seconds = progress.seconds
        meter = self.fed.meter
        meter.samples_trained = progress.samples_trained
        meter.bytes_down, meter.bytes_up = progress.bytes_down, progress.bytes_up
        self.fed = replace(self.fed, register=progress.register)
        if self.private is not None:
            self.private.budgets.restore(progress.spent)
        self.examiner.turn_to(self.fed.at(round))  # in case no round follows

    def elapsed(self) -> float:
        return self.seconds + time.perf_counter() - self.started
