"""A client's machine: its samples, and its answers to the server, within its site's policy.

No message names rows, but for samples to give: the machine trains on all that it has to train on,
and evaluates whole splits. Samples leave it only within the cap.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from sofa_fl.data.federated_data import Arrays, Samples, SplitName
from sofa_fl.engine.base import Exam, Prior, Task, batch_order
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.engine.task_codec import MODEL_FIELD, Embedding, Header, R, decode
from sofa_fl.models.flat import as_vector
from sofa_fl.present import log_shares
from sofa_fl.topology.tree import NodeId
from sofa_fl_flower.machine import limits
from sofa_fl_flower.machine.coarse import CoarseLearner, coarse_moments
from sofa_fl_flower.machine.gate import Gate
from sofa_fl_flower.machine.machine_data import MachineData, fingerprint_of, with_holdout
from sofa_fl_flower.machine.model_cache import ModelCache
from sofa_fl_flower.machine.own_batches import arranged, draw_batches
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.secure_sums import SecureSums
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.machine.site_records import SumRecord, disclose
from sofa_fl_flower.transport.machine_profile import MachineProfile, SampleFormat
from sofa_fl_flower.transport.message_checks import MessageError, RefusalError, check_samples, shown
from sofa_fl_flower.transport.run_setup import MakeNetwork, RunSetup
from sofa_fl_flower.transport.wire_message import KINDS, VERSION, MessageBuilder, WireMessage

EMBED_CHUNK = 500  # samples whose features are computed at a time


class ClientMachine:
    """One machine in one run; a process creates it for the first message, and keeps it.

    Args:
        data: What the machine owns.
        setup: How the run trains.
        policy: What the site allows.
        site: The site's key and its ledger.
        number: The client that it asks to be.
        make_network: Creates the user's own network; by default the configured one.

    Attributes:
        caches_models: Whether it keeps models for later messages.

    Raises:
        RefusalError: The policy does not allow the run.
    """

    def __init__(
        self,
        data: MachineData,
        setup: RunSetup,
        policy: Policy,
        site: Site,
        number: int | None = None,
        make_network: MakeNetwork | None = None,
    ) -> None:
        limits.check_setup(policy, setup, brings_network=make_network is not None)
        self.fingerprint = site.hash(fingerprint_of(data), b"samples")
        self.data = data = with_holdout(data, policy.holdout)
        self.setup, self.policy, self.site, self.number = setup, policy, site, number
        self.samples = data.train if data.holdout is None else _joined(data.train, data.holdout)
        limits.check_privacy(policy, is_regression=data.train.y.dtype.kind == "f")
        limits.check_batch_size(setup.local.batch_size, len(data.train))
        limits.check_splits(policy, len(data.train), len(self.samples) - len(data.train))
        # A score on fewer samples would tell too much of each.
        num_test = 0 if data.test is None else len(data.test)
        self.test = data.test if num_test >= policy.min_rows else None
        self.factory = setup.network_factory(data.train.x.shape[1:], make_network)
        if make_network is not None:
            limits.check_frozen(setup, self.factory)
        self.caches_models = False

    @cached_property
    def learner(self) -> Learner:
        """One network on one device, created when it is first needed."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        # One thread, as in every engine: results would depend on the number of threads.
        torch.set_num_threads(1)
        stores: dict[SplitName, Store] = {"train": Store(self.samples, device)}
        if self.test is not None:
            stores["test"] = Store(self.test, device)
        return Learner(self.factory, stores, self.setup.local, device)

    @cached_property
    def gate(self) -> Gate:
        policy, learner = self.policy, self.learner
        coarse = CoarseLearner(learner, self.samples.y) if policy.coarse_scores else None
        return Gate(learner, policy.privacy, self.site.spent, coarse)

    @cached_property
    def record(self) -> SumRecord:
        return SumRecord(self.site.sums)

    @cached_property
    def sums(self) -> SecureSums:
        config, num = self.policy.secure_aggregation, len(self.data.train)
        return SecureSums(config, self.site.key, self.record, num)

    @cached_property
    def cache(self) -> ModelCache:
        return ModelCache(len(self.learner.flat.vector), self.setup.transport)

    def answer(self, message: WireMessage) -> WireMessage:
        """Do all that a message asks for."""
        message.check_version()
        header = message.header
        if header.get("ask") == "hello":
            return self.hello()
        began = time.perf_counter()
        builder = MessageBuilder(self.setup.transport)
        asked = {name: _headers(message, name) for name in KINDS}
        limits.check_requests(self.policy, sum(map(len, asked.values())), len(asked["tasks"]))
        if not self.policy.privacy.epsilon:
            num_scores = len(asked["tasks"]) + len(asked["exams"])
            self.record.count_scores(num_scores, self.policy.max_scores)
        outcomes = [self._train(one, message, builder) for one in asked["tasks"]]
        scores = [self._evaluate(one, message) for one in asked["exams"]]
        embeds = [self._embed(one, message, builder) for one in asked["embeds"]]
        revealed = [self.sums.reveal(one, message, builder) for one in asked["unmask"]]
        worked = time.perf_counter() - began
        cached: dict[str, str] = {}
        if self.caches_models and outcomes:
            self.cache.keep_trained(outcomes, builder)
        elif self.caches_models:
            cached = self.cache.keep_sent(asked["exams"], message)
        if header.get("give"):
            self._give(message.array("give", "int32", (None,)).astype(np.int64), builder)
        return builder.message(
            outcomes=outcomes,
            scores=scores,
            embeds=embeds,
            revealed=revealed,
            spent=dict(self.gate.told) if self.policy.privacy.epsilon else {},
            worked=worked,
            cached=cached,
        )

    def hello(self) -> WireMessage:
        """Describe the samples: how many there are, of which type and shape."""
        profile = self.profile()
        return WireMessage({"version": VERSION, **profile.header()}, profile.arrays())

    def profile(self) -> MachineProfile:
        train, is_classifier = self.data.train, self.data.train.y.dtype.kind != "f"
        splits = [part for part in (train, self.data.holdout, self.data.test) if part is not None]
        target_sums, target_squares = None, None
        if not is_classifier:
            targets = train.y.reshape(len(train), -1).astype(np.float64)
            target_sums, target_squares = targets.sum(axis=0), (targets**2).sum(axis=0)
            if self.policy.coarse_scores:
                target_sums, target_squares = coarse_moments(targets)
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
            name=self.policy.name,
            identity=self.site.identity,
            fingerprint=self.fingerprint,
            cap=self.policy.max_disclosure,
            receives=self.policy.max_received > 0,
            sum_key=self.sums.public,
            smallest_cluster=self.policy.secure_aggregation.smallest_cluster,
            ids=None if self.data.ids is None else self.data.ids.astype(np.int64),
            target_sums=target_sums,
            target_squares=target_squares,
        )

    def _train(
        self, header: Header, message: WireMessage, builder: MessageBuilder
    ) -> dict[str, str]:
        learner, num_own = self.learner, len(self.data.train)
        train, samples = self.samples, np.arange(num_own)
        if header.get("given") is not None:
            given = self._given(message)
            used = message.array(header["given"], "int32", (None,)).astype(np.int64)
            if len(np.unique(used)) < len(used) or not np.isin(used, np.arange(len(given))).all():
                raise MessageError(
                    f"requested samples must be distinct, and from 0 to {len(given) - 1}"
                )
            samples = np.concatenate([samples, len(train) + used])
            train = _joined(train, given)
        plain = limits.read_task_values(header, self.setup)
        pulls = limits.read_pulls(header)
        num_given, batches, seed = len(samples) - num_own, plain["batches"], plain["seed"]
        limits.check_training(self.policy, num_own, num_given, batches, seed)
        mixed = None if train is self.samples else train.take(samples[num_own:])
        batched = samples[self._batches(len(samples), batches, seed)]
        if not self.policy.privacy.epsilon:  # then batches are drawn sample by sample
            samples = batched
        prior = self._class_mix(mixed) if header.get("prior") else None
        own = {"site": NodeId(0), "samples": samples, "prior": prior, "pulls": pulls}
        task = self._decode(Task, header, message, **plain, **own)
        plan = self.sums.begin(header, task, self.setup)
        store = learner.stores["train"]
        try:
            if train is not self.samples:
                learner.stores["train"] = Store(train, learner.device)
            outcome = self.gate.train(task)
        finally:
            learner.stores["train"] = store
        losses = {"losses": builder.add(outcome.losses)}
        if plan is None:
            return {"params": builder.add_model(outcome.params), **losses}
        return {**self.sums.masked(plan, outcome.params, builder), **losses}

    def _batches(self, num: int, batches: int, seed: int) -> Samples:
        """The positions to train on, in an order of which the learner makes the batches."""
        size, num_own, policy = self.setup.local.batch_size, len(self.data.train), self.policy
        order = batch_order(num, batches, size, seed)
        if policy.own_batches:
            order = draw_batches(num, num_own, batches, size, policy.min_rows)
        limits.check_batches(policy, order, num_own)
        return arranged(order, seed) if policy.own_batches else np.arange(num)

    def _given(self, message: WireMessage) -> Arrays:
        """The samples of others in a message."""
        train = self.data.train
        x = message.array("given_x", str(train.x.dtype), (None, *train.x.shape[1:]))
        y = message.array("given_y", str(train.y.dtype), (len(x), *train.y.shape[1:]))
        given = replace(train, x=x, y=y)
        check_samples(given, self.setup.num_outputs)
        return given

    def _evaluate(self, header: Header, message: WireMessage) -> list[float]:
        samples, split = self._split(header.get("split"))
        if not len(samples):
            return [float("nan"), float("nan"), 0]
        prior = self._class_mix() if header.get("prior") else None
        exam = self._decode(Exam, header, message, samples=samples, split=split, prior=prior)
        score = self.gate.evaluate(exam, header["split"])
        return [score.loss, score.accuracy, score.num_samples]

    def _split(self, name: object) -> tuple[Samples, SplitName]:
        """All positions of a split, and the store in which they are."""
        num_train = len(self.data.train)
        match name:
            case "train":
                return np.arange(num_train), "train"
            case "holdout":
                return np.arange(num_train, len(self.samples)), "train"
            case "test":
                return np.arange(0 if self.test is None else len(self.test)), "test"
        raise MessageError("an evaluation must use train, holdout or test")

    def _embed(self, header: Header, message: WireMessage, builder: MessageBuilder) -> str:
        if not self.policy.embeds:
            raise RefusalError(
                "this site returns no features of its samples; use sofa.position=weights, or ask "
                "the site to set embeds in its policy"
            )
        samples = np.arange(len(self.data.train))
        model = as_vector(self._decode(Embedding, header, message, samples=samples).model)
        chunks = np.split(samples, range(EMBED_CHUNK, len(samples), EMBED_CHUNK))
        features = [self.learner.embed(model, chunk) for chunk in chunks]
        mean = np.average(features, axis=0, weights=list(map(len, chunks)))
        self.record.count_scores(mean.size, self.policy.max_scores)
        return builder.add(mean)

    def _decode(self, kind: type[R], header: Header, message: WireMessage, **values: Any) -> R:
        """Decode a request; its model comes from the message, `values` have been checked."""
        model = MODEL_FIELD[kind]
        return decode(
            kind, {model: header.get(model), **values}, lambda name: self.cache.find(name, message)
        )

    def _give(self, positions: Samples, builder: MessageBuilder) -> None:
        """Give the samples at these positions, as far as the cap allows."""
        cap, site = self.policy.max_disclosure, self.site
        allowed = disclose(self.data.train, positions, cap, site.ledger, site.key)
        builder.add(allowed.astype(np.int32), "gave")
        builder.add(self.data.train.x[allowed], "gave_x")
        builder.add(self.data.train.y[allowed], "gave_y")

    def _class_mix(self, given: Arrays | None = None) -> Prior:
        """How common each class is among the training samples, and those of others."""
        num, labels = self.setup.num_outputs, self.data.train.y
        if labels.dtype.kind == "f":
            raise MessageError("a regression has no classes, so prior must be false")
        counts = self.gate.class_counts(labels, num)
        return log_shares(counts if given is None else counts + np.bincount(given.y, minlength=num))


def _headers(message: WireMessage, name: str) -> list[Header]:
    """The requests of one kind in a message."""
    headers = message.header.get(name, [])
    if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
        raise MessageError(f"{name} must be a list of mappings, got {shown(repr(headers))}")
    return headers


def _joined(first: Arrays, second: Arrays) -> Arrays:
    return replace(
        first, x=np.concatenate([first.x, second.x]), y=np.concatenate([first.y, second.y])
    )
