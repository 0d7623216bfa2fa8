"""A node's side: its samples, and the answers to what the server asks.

Samples leave by `give` alone, as far as the node's own cap reaches.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sofa_fl.data.base import Arrays, Samples, Split
from sofa_fl.deploy.machine.disclosure import Disclosure, MemoryShelf, Shelf
from sofa_fl.deploy.machine.machine_data import NodeData, held_out, mark_of
from sofa_fl.deploy.transport.pull_codec import read_pulls
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.wire import (
    GarbageError,
    Packer,
    Parcel,
    check_version,
    read_mix,
    typed,
)
from sofa_fl.engine.base import Exam, Outcome, Prior, Score, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, as_vector
from sofa_fl.models.networks import NetworkFactory, network_factory
from sofa_fl.present import log_shares
from sofa_fl.topology.tree import NodeId

Network = Callable[[tuple[int, ...], int], nn.Module]  # of the shape of an input, and outputs


class Site:
    """One node, at one run: made by the first message of a process, and kept for the next.

    Args:
        data: What the node owns.
        setup: How the run trains.
        cap: Fraction of its training samples that may ever leave.
        number: Which client it wants to be.
        network: Makes an own network; by default the configured one.
    """

    def __init__(
        self,
        data: NodeData,
        setup: Setup,
        cap: float,
        number: int | None = None,
        network: Network | None = None,
    ) -> None:
        self.mark = mark_of(data)
        self.data = data = held_out(data, setup.holdout, setup.seed, number or 0)
        self.setup, self.cap, self.number = setup, cap, number
        self.shelf: Shelf = MemoryShelf({})  # where the node remembers what has left it
        self.own = data.train if data.holdout is None else _joined(data.train, data.holdout)
        self.test = data.test if data.test is not None and len(data.test) else None
        self.factory = factory_of(setup, data.train.x.shape[1:], network)
        self.keeps = False  # whether it is still there for the next message
        self.kept: dict[str, NDArray[Any]] = {}  # by name: models that it trained or was sent since
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """One network on one device; made when it is first needed."""
        if self._learner is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            # One thread, as all engines: sums come out the same to the bit on any machine.
            torch.set_num_threads(1)
            stores: dict[Split, Store] = {"train": Store(self.own, device)}
            if self.test is not None:
                stores["test"] = Store(self.test, device)
            self._learner = Learner(self.factory, stores, self.setup.local, device)
        return self._learner

    def answer(self, asked: Parcel) -> Parcel:
        """Do all that a message asks for."""
        check_version(asked)
        if asked.header.get("ask") == "hello":
            return self.hello()
        began = time.perf_counter()
        packer = Packer(self.setup.transport)
        outcomes = [self._train(spec, asked, packer) for spec in asked.header.get("tasks", [])]
        scores = [self._evaluate(spec, asked) for spec in asked.header.get("exams", [])]
        embeds = [self._embed(spec, asked, packer) for spec in asked.header.get("embeds", [])]
        worked = time.perf_counter() - began
        kept = self._keep(outcomes, asked, packer) if self.keeps else {}
        if asked.header.get("give"):
            self._give(asked.array("give", "int32", (None,)).astype(np.int64), packer)
        return packer.parcel(
            outcomes=outcomes, scores=scores, embeds=embeds, worked=worked, kept=kept
        )

    def hello(self) -> Parcel:
        """What the server has to know: how much there is and what it looks like."""
        data, packer = self.data, Packer()
        if data.ids is not None:
            packer.add(data.ids.astype(np.int64), "ids")
        is_classifier = data.train.y.dtype.kind != "f"
        splits = [part for part in (data.train, data.holdout, data.test) if part is not None]
        if not is_classifier:  # what a blind guess loses is learned from the sums of all nodes
            y = data.train.y.reshape(len(data.train), -1).astype(np.float64)
            packer.add(y.sum(axis=0), "target_sums")
            packer.add((y**2).sum(axis=0), "target_squares")
        return packer.parcel(
            num_train=len(data.train),
            num_holdout=len(self.own) - len(data.train),
            num_test=0 if self.test is None else len(self.test),
            input=[str(data.train.x.dtype), *data.train.x.shape[1:]],
            target=[str(data.train.y.dtype), *data.train.y.shape[1:]],
            scale=data.train.scale,
            shift=data.train.shift,
            num_classes=max(part.num_classes for part in splits) if is_classifier else 0,
            number=self.number,
            mark=self.mark,
            cap=self.cap,
        )

    def _train(self, spec: Any, asked: Parcel, packer: Packer) -> dict[str, str]:
        learner, transport = self.learner, self.setup.transport
        train, given = self.own, typed(spec, "given", bool)
        if given:
            x = asked.array("given_x", str(train.x.dtype), (None, *train.x.shape[1:]))
            y = asked.array("given_y", str(train.y.dtype), (len(x), *train.y.shape[1:]))
            train = _joined(train, replace(train, x=x, y=y))
        samples = _rows(asked, spec, len(train))
        prior: Prior | None = None
        if spec.get("prior"):
            prior = self._mix(train.y[samples])
        task = Task(
            site=NodeId(0),
            start=self._model(spec.get("start"), asked),
            samples=samples,
            batches=typed(spec, "batches", int),
            seed=typed(spec, "seed", int),
            pulls=read_pulls(spec.get("pull"), asked, learner.flat.num_trainable, transport),
            pace=typed(spec, "pace", float),
            prior=prior,
        )
        own = learner.stores["train"]
        try:
            if given:
                learner.stores["train"] = Store(train, learner.device)
            outcome: Outcome = learner.train(task)
        finally:
            learner.stores["train"] = own
        return {"params": packer.add_model(outcome.params), "losses": packer.add(outcome.losses)}

    def _evaluate(self, spec: Any, asked: Parcel) -> list[float]:
        split: Split = "test" if spec.get("split") == "test" else "train"
        arrays = self.own if split == "train" else self.test
        samples = _rows(asked, spec, 0 if arrays is None else len(arrays))
        if not len(samples):
            return [float("nan"), float("nan"), 0]
        model = self._model(spec.get("model"), asked)
        prior = self._mix(self.data.train.y) if spec.get("prior") else None
        score: Score = self.learner.evaluate(Exam(model, samples, split, prior))
        return [score.loss, score.accuracy, score.num_samples]

    def _embed(self, spec: Any, asked: Parcel, packer: Packer) -> str:
        model = self._model(spec.get("model"), asked)
        return packer.add(self.learner.embed(model, _rows(asked, spec, len(self.own))))

    def _model(self, name: Any, asked: Parcel) -> Vector:
        """A model that came along, one that stayed here, or a mix of such."""
        if isinstance(name, list):
            names, weights = read_mix(name)
            return as_vector(Mix(tuple(self._model(part, asked) for part in names), weights))
        if isinstance(name, str) and name in self.kept:
            asked = Parcel({}, self.kept)
        return asked.model(name, len(self.learner.flat.vector), self.setup.transport)

    def _keep(
        self, outcomes: list[dict[str, str]], asked: Parcel, packer: Packer
    ) -> dict[str, str]:
        """Remember what was trained, or what models were sent; the names of the latter here.

        A training begins anew: what was kept before is not asked for again.
        """
        token = secrets.token_hex(4)
        if outcomes:
            for number, outcome in enumerate(outcomes):
                outcome["kept"] = f"{token} {number}"
            self.kept = {o["kept"]: packer.arrays[o["params"]] for o in outcomes}
            return {}
        named = [exam.get("model") for exam in asked.header.get("exams", [])]
        used = {
            part
            for name in named
            for part in (read_mix(name)[0] if isinstance(name, list) else (name,))
        }
        found = {name: f"{token} {name}" for name in sorted(used & asked.arrays.keys())}
        self.kept |= {new: asked.arrays[name] for name, new in found.items()}
        return found

    def _give(self, positions: Samples, packer: Packer) -> None:
        name, size = f"left-{self.mark}", len(self.data.train)
        allowed = Disclosure(self.shelf, name, size, self.cap).release(positions)
        packer.add(allowed.astype(np.int32), "gave")
        packer.add(self.data.train.x[allowed], "gave_x")
        packer.add(self.data.train.y[allowed], "gave_y")

    def _mix(self, labels: Any) -> Prior:
        return log_shares(np.bincount(labels, minlength=self.setup.num_outputs))


def factory_of(setup: Setup, shape: tuple[int, ...], network: Network | None) -> NetworkFactory:
    """What makes the run's network."""
    if network is None:
        return network_factory(setup.model, shape, setup.num_outputs)
    return lambda: network(shape, setup.num_outputs)


def _rows(asked: Parcel, spec: Mapping[str, Any], end: int) -> Samples:
    rows = asked.array(spec.get("rows"), "int32", (None,)).astype(np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < end:
        raise GarbageError(f"samples must be numbered from 0 to {end - 1}")
    return rows


def _joined(first: Arrays, second: Arrays) -> Arrays:
    return replace(
        first, x=np.concatenate([first.x, second.x]), y=np.concatenate([first.y, second.y])
    )
