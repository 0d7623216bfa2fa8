"""A client's machine: its samples, and its answers to the server.

Samples leave it only where a message asks to `give` some, and only within its own cap.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, Samples, Split
from sofa_fl.deploy.machine.disclosure import Disclosure, MemoryStore, StateStore
from sofa_fl.deploy.machine.machine_data import MachineData, fingerprint_of, with_holdout
from sofa_fl.deploy.transport.machine_profile import MachineProfile, SampleFormat
from sofa_fl.deploy.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl.deploy.transport.wire_message import (
    VERSION,
    MessageBuilder,
    MessageError,
    WireMessage,
    checked,
    read_mix,
)
from sofa_fl.engine.base import Exam, Part, Prior, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.engine.task_codec import MODEL_FIELD, Embedding, Header, R, decode
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, as_vector
from sofa_fl.present import log_shares
from sofa_fl.topology.tree import NodeId


class ClientMachine:
    """One machine in one run; a process creates it for the first message, and keeps it.

    Args:
        data: What the machine owns.
        setup: How the run trains.
        cap: Fraction of its training samples that it ever discloses.
        number: The client that it asks to be.
        make_network: Creates the user's own network; by default the configured one.

    Attributes:
        store: Where it remembers what it has disclosed.
        caches_models: Whether it keeps models for later messages.
    """

    def __init__(
        self,
        data: MachineData,
        setup: RunSetup,
        cap: float,
        number: int | None = None,
        make_network: MakeNetwork | None = None,
    ) -> None:
        self.fingerprint = fingerprint_of(data)
        self.data = data = with_holdout(data, setup.holdout, setup.seed, number or 0)
        self.setup, self.cap, self.number = setup, cap, number
        self.store: StateStore = MemoryStore({})
        self.samples = data.train if data.holdout is None else _joined(data.train, data.holdout)
        self.test = data.test if data.test is not None and len(data.test) else None
        self.factory = setup.network_factory(data.train.x.shape[1:], make_network)
        self.caches_models = False
        self._cache: dict[str, NDArray[Any]] = {}  # models that it trained, or was sent since
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """One network on one device, created when it is first needed."""
        if self._learner is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            # One thread, as in every engine: results would depend on the number of threads.
            torch.set_num_threads(1)
            stores: dict[Split, Store] = {"train": Store(self.samples, device)}
            if self.test is not None:
                stores["test"] = Store(self.test, device)
            self._learner = Learner(self.factory, stores, self.setup.local, device)
        return self._learner

    def answer(self, message: WireMessage) -> WireMessage:
        """Do all that a message asks for."""
        message.check_version()
        header = message.header
        if header.get("ask") == "hello":
            return self.hello()
        began = time.perf_counter()
        builder = MessageBuilder(self.setup.transport)
        outcomes = [self._train(one, message, builder) for one in _headers(message, "tasks")]
        scores = [self._evaluate(one, message) for one in _headers(message, "exams")]
        embeds = [self._embed(one, message, builder) for one in _headers(message, "embeds")]
        worked = time.perf_counter() - began
        cached: dict[str, str] = {}
        if self.caches_models:
            cached = self._cache_models(outcomes, message, builder)
        if header.get("give"):
            self._give(message.array("give", "int32", (None,)).astype(np.int64), builder)
        return builder.message(
            outcomes=outcomes, scores=scores, embeds=embeds, worked=worked, cached=cached
        )

    def hello(self) -> WireMessage:
        """Describe the samples: how many there are, of which type and shape."""
        profile = self.profile()
        return WireMessage({"version": VERSION, **profile.header()}, profile.arrays())

    def profile(self) -> MachineProfile:
        train, is_classifier = self.data.train, self.data.train.y.dtype.kind != "f"
        splits = [part for part in (train, self.data.holdout, self.data.test) if part is not None]
        targets = train.y.reshape(len(train), -1).astype(np.float64)
        return MachineProfile(
            num_train=len(train),
            num_holdout=len(self.samples) - len(train),
            num_test=0 if self.test is None else len(self.test),
            num_classes=max(part.num_classes for part in splits) if is_classifier else 0,
            format=SampleFormat(
                (str(train.x.dtype), train.x.shape[1:]),
                (str(train.y.dtype), train.y.shape[1:]),
                train.scale,
                train.shift,
            ),
            number=self.number,
            fingerprint=self.fingerprint,
            cap=self.cap,
            ids=None if self.data.ids is None else self.data.ids.astype(np.int64),
            target_sums=None if is_classifier else targets.sum(axis=0),
            target_squares=None if is_classifier else (targets**2).sum(axis=0),
        )

    def _train(
        self, header: Header, message: WireMessage, builder: MessageBuilder
    ) -> dict[str, str]:
        learner, train, given = self.learner, self.samples, checked(header, "given", bool)
        if given:
            x = message.array("given_x", str(train.x.dtype), (None, *train.x.shape[1:]))
            y = message.array("given_y", str(train.y.dtype), (len(x), *train.y.shape[1:]))
            train = _joined(train, replace(train, x=x, y=y))
        samples = _positions(message, header, len(train))
        prior = self._class_mix(train.y[samples]) if header.get("prior") else None
        plain = {
            name: checked(header, name, kind)
            for name, kind in (("batches", int), ("seed", int), ("pace", float), ("part", str))
        }
        if plain["part"] not in get_args(Part):
            raise MessageError(f"part must be one of {get_args(Part)}, got {plain['part']!r}")
        if (pulls := header.get("pulls")) is not None:
            weights = {name: checked(pulls, name, float) for name in ("weight", "decay")}
            pulls = {**weights, "target": pulls.get("target")}
        own = {"site": NodeId(0), "samples": samples, "prior": prior, "pulls": pulls}
        task = self._decode(Task, header, message, **plain, **own)
        store = learner.stores["train"]
        try:
            if given:
                learner.stores["train"] = Store(train, learner.device)
            outcome = learner.train(task)
        finally:
            learner.stores["train"] = store
        return {"params": builder.add_model(outcome.params), "losses": builder.add(outcome.losses)}

    def _evaluate(self, header: Header, message: WireMessage) -> list[float]:
        split: Split = "test" if header.get("split") == "test" else "train"
        arrays = self.samples if split == "train" else self.test
        samples = _positions(message, header, 0 if arrays is None else len(arrays))
        if not len(samples):
            return [float("nan"), float("nan"), 0]
        prior = self._class_mix(self.data.train.y) if header.get("prior") else None
        exam = self._decode(Exam, header, message, samples=samples, split=split, prior=prior)
        score = self.learner.evaluate(exam)
        return [score.loss, score.accuracy, score.num_samples]

    def _embed(self, header: Header, message: WireMessage, builder: MessageBuilder) -> str:
        samples = _positions(message, header, len(self.samples))
        embedding = self._decode(Embedding, header, message, samples=samples)
        return builder.add(self.learner.embed(as_vector(embedding.model), samples))

    def _decode(self, kind: type[R], header: Header, message: WireMessage, **values: Any) -> R:
        """Decode a request; its model comes from the message, `values` have been checked."""
        model = MODEL_FIELD[kind]
        return decode(
            kind, {model: header.get(model), **values}, lambda name: self._model(name, message)
        )

    def _model(self, name: Any, message: WireMessage) -> Vector:
        """A model of the message, one in the cache, or a mix of such."""
        if isinstance(name, list):
            names, weights = read_mix(name)
            return as_vector(Mix(tuple(self._model(part, message) for part in names), weights))
        if isinstance(name, str) and name in self._cache:
            message = WireMessage({}, self._cache)
        return message.model(name, len(self.learner.flat.vector), self.setup.transport)

    def _cache_models(
        self, outcomes: list[dict[str, str]], message: WireMessage, builder: MessageBuilder
    ) -> dict[str, str]:
        """Cache the models that were trained, else those that were sent, with their new names.

        A training empties the cache: the server does not refer to earlier models any more.
        """
        token = secrets.token_hex(4)
        if outcomes:
            for number, outcome in enumerate(outcomes):
                outcome["cached"] = f"{token} {number}"
            self._cache = {o["cached"]: builder.arrays[o["params"]] for o in outcomes}
            return {}
        used: set[str] = set()
        for exam in _headers(message, "exams"):
            name = exam.get("params")
            used.update(read_mix(name)[0] if isinstance(name, list) else (str(name),))
        cached = {name: f"{token} {name}" for name in sorted(used & message.arrays.keys())}
        self._cache |= {new: message.arrays[name] for name, new in cached.items()}
        return cached

    def _give(self, positions: Samples, builder: MessageBuilder) -> None:
        """Give the samples at these positions, as far as the cap allows."""
        name, size = f"left-{self.fingerprint}", len(self.data.train)
        allowed = Disclosure(self.store, name, size, self.cap).release(positions)
        builder.add(allowed.astype(np.int32), "gave")
        builder.add(self.data.train.x[allowed], "gave_x")
        builder.add(self.data.train.y[allowed], "gave_y")

    def _class_mix(self, labels: Any) -> Prior:
        return log_shares(np.bincount(labels, minlength=self.setup.num_outputs))


def _headers(message: WireMessage, name: str) -> list[Header]:
    """The requests of one kind in a message."""
    headers = message.header.get(name, [])
    if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
        raise MessageError(f"{name} must be a list of mappings, got {headers!r}")
    return headers


def _positions(message: WireMessage, header: Header, end: int) -> Samples:
    """The positions of the samples that a request names, checked to be below `end`."""
    positions = message.array(header.get("samples"), "int32", (None,)).astype(np.int64)
    if len(positions) and not 0 <= positions.min() <= positions.max() < end:
        raise MessageError(
            f"samples must be numbered from 0 to {end - 1}, got {positions.min()} to "
            f"{positions.max()}"
        )
    return positions


def _joined(first: Arrays, second: Arrays) -> Arrays:
    return replace(
        first, x=np.concatenate([first.x, second.x]), y=np.concatenate([first.y, second.y])
    )
