"""The engine of a deployment: tasks and exams are messages to the nodes that own the samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, Samples, Split
from sofa_fl.deploy.machine.model_cache import NOTHING, Kept, kept_outcomes
from sofa_fl.deploy.server.exchange import Office
from sofa_fl.deploy.server.roster import Index, Roster
from sofa_fl.deploy.server.sample_relay import Lending
from sofa_fl.deploy.transport.run_setup import Setup
from sofa_fl.deploy.transport.task_codec import (
    foreign_rows,
    pack_tasks,
    read_outcomes,
    read_scores,
    together,
)
from sofa_fl.deploy.transport.wire import GarbageError, Packer, Parcel, check_version
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.models.flat import FlatNetwork, Vector
from sofa_fl.models.mix import identity
from sofa_fl.models.networks import NetworkFactory, build
from sofa_fl.present import log_shares
from sofa_fl.topology.tree import NodeId


class RemoteEngine:
    """Asks nodes; who is not there, or gives no proper answer, has no outcome and no score."""

    def __init__(
        self, office: Office, roster: Roster, setup: Setup, factory: NetworkFactory
    ) -> None:
        self.office, self.roster, self.setup, self.factory = office, roster, setup, factory
        self.lending = Lending()
        self._size = len(self.initial(0))
        self._expected: Samples = np.empty(0, dtype=np.int64)
        self._kept: dict[int, Kept] = {}  # by node, which models it has still
        self._known: dict[object, tuple[Exam, Score]] = {}  # with the exam: ids must stay taken

    @cached_property
    def num_trainable(self) -> int:
        return FlatNetwork(build(self.factory, 0)).num_trainable

    def initial(self, seed: int) -> Vector:
        return FlatNetwork(build(self.factory, seed)).vector

    def expect(self, rows: Samples) -> None:
        """These samples will be needed by others: ask for them together with the next exams."""
        self._expected = rows

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        asked = list(tasks)
        index = self.roster.index("train")
        needed = [foreign_rows(task, index) for task in asked]
        self._borrow(np.unique(np.concatenate([*needed, self._expected[:0]])), index)
        by_node: dict[int, list[int]] = {}
        outcomes: list[Outcome | None] = [None] * len(asked)
        for number, task in enumerate(asked):
            if task.site not in self.roster.members:  # a cluster, which learns from its pool
                outcomes[number] = self._train_here(task)
            elif (node := self.roster.node_of(task.site)) is not None:
                by_node.setdefault(node, []).append(number)
        parcels = {
            node: self._training([asked[i] for i in numbers], index)
            for node, numbers in by_node.items()
        }
        self._kept = {}
        for node, answer in self._exchange(parcels, "train").items():
            try:
                size, transport = self._size, self.setup.transport
                found = read_outcomes(answer, len(by_node[node]), size, transport)
            except GarbageError as error:
                self._set_aside(node, str(error))
                continue
            self.roster.did_work(node)
            for number, outcome in zip(by_node[node], found):
                outcomes[number] = outcome
            self._kept[node] = kept_outcomes(answer, found)
        self.lending.keep(np.concatenate([*needed, self._expected[:0]]))
        self._known = {}
        return outcomes

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        """What was asked since the last training is not asked again: nodes' samples stay."""
        keys = [(identity(e.params), id(e.samples), e.split, e.prior is not None) for e in exams]
        new = {key: exam for key, exam in zip(keys, exams) if key not in self._known}
        found = dict(zip(new, self._evaluate(list(new.values()))))
        self._known |= {k: (new[k], score) for k, score in found.items() if score.num_samples}
        return [self._known[key][1] if key in self._known else found[key] for key in keys]

    def _evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        parts = [
            (number, exam, owner, rows)
            for number, exam in enumerate(exams)
            for owner, rows in self._by_owner(exam.samples, exam.split)
        ]
        packers: dict[int, tuple[Packer, list[dict[str, Any]], list[int]]] = {}
        for number, exam, owner, rows in parts:
            if (node := self.roster.node_of(owner)) is None:
                continue
            packer, specs, numbers = packers.setdefault(
                node, (Packer(self.setup.transport), [], [])
            )
            specs.append(
                {
                    "model": self._kept.get(node, NOTHING).name(exam.params, packer),
                    "split": exam.split,
                    "rows": packer.add(rows.astype(np.int32)),
                    "prior": exam.prior is not None,
                }
            )
            numbers.append(number)
        wanted = self._wanted(self._expected)
        self._expected = self._expected[:0]
        parcels = {}
        for node in packers.keys() | wanted.keys():
            packer, specs, _ = packers.setdefault(node, (Packer(self.setup.transport), [], []))
            parcels[node] = self._parcel(packer, exams=specs, give=wanted.get(node))
        found: list[list[Score]] = [[] for _ in exams]
        for node, answer in self._exchange(parcels, "evaluate").items():
            numbers = packers[node][2]
            try:
                scores = read_scores(answer, len(numbers))
                self._lend(node, answer, wanted.get(node))
                self._kept[node] = self._kept.get(node, NOTHING).with_sent(answer, packers[node][0])
            except GarbageError as error:
                self._set_aside(node, str(error))
                continue
            for number, score in zip(numbers, scores):
                found[number].append(score)
        return [together(scores) for scores in found]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        parts = self._by_owner(samples, "train")
        parcels, weights = {}, {}
        for owner, rows in parts:
            if (node := self.roster.node_of(owner)) is None:
                continue
            packer = Packer(self.setup.transport)
            where = packer.add(rows.astype(np.int32))
            specs = [{"model": packer.add_model(model), "rows": where} for model in models]
            parcels[node] = self._parcel(packer, embeds=specs)
            weights[node] = len(rows)
        features, counts = [], []
        for node, answer in self._exchange(parcels, "evaluate").items():
            try:
                names = answer.value("embeds", list)
                rows_found = [answer.array(name, "float64", (None,)) for name in names]
                if len({len(row) for row in rows_found}) != 1 or len(names) != len(models):
                    raise GarbageError("features are missing")
            except GarbageError as error:
                self._set_aside(node, str(error))
                continue
            features.append(np.stack(rows_found))
            counts.append(weights[node])
        if not features:
            raise GarbageError("no node gave features of its samples; use sofa.position=weights")
        return np.average(np.stack(features), axis=0, weights=counts)

    def close(self) -> None:
        """Nothing to let go of."""

    def _borrow(self, rows: Samples, index: Index) -> None:
        """Ask the owners for the samples that are not here yet."""
        wanted = self._wanted(rows)
        parcels = {
            node: self._parcel(Packer(self.setup.transport), give=positions)
            for node, positions in wanted.items()
        }
        for node, answer in self._exchange(parcels, "evaluate").items():
            try:
                self._lend(node, answer, wanted[node])
            except GarbageError as error:
                self._set_aside(node, str(error))

    def _wanted(self, rows: Samples) -> dict[int, Samples]:
        """By node, which of these samples to ask it for."""
        missing = self.lending.missing(rows)
        found = {}
        for owner, positions in self._by_owner(missing, "train"):
            if (node := self.roster.node_of(owner)) is not None:
                found[node] = positions
        return found

    def _lend(self, node: int, answer: Parcel, asked: Samples | None) -> None:
        """Take what a node gave; what it did not give it is not asked for again."""
        if asked is None:
            return
        client = self.roster.client_at(node)
        assert client is not None
        member = self.roster.members[client]
        kind = member.card.kind
        gave = answer.array("gave", "int32", (None,)).astype(np.int64)
        x = answer.array("gave_x", kind.input[0], (len(gave), *kind.input[1]))
        y = answer.array("gave_y", kind.target[0], (len(gave), *kind.target[1]))
        if not np.isin(gave, asked).all():
            raise GarbageError("it gave samples that nobody asked for")
        self.lending.put(member.rows.train[gave], x, y)
        self.lending.refuse(member.rows.train[np.setdiff1d(asked, gave)])

    def _train_here(self, task: Task) -> Outcome | None:
        """Train a cluster on its pool, which has passed through here."""
        here = task.samples[self.lending.has(task.samples)]
        if not len(here):
            return None
        x, y = self.lending.get(here)
        card = next(iter(self.roster.members.values())).card
        arrays = Arrays(x, y, card.kind.scale, card.kind.shift)
        learner = Learner(self.factory, {"train": Store(arrays)}, self.setup.local)
        prior = task.prior
        if prior is not None:
            prior = log_shares(np.bincount(y, minlength=self.setup.num_outputs))
        return learner.train(replace(task, samples=np.arange(len(here)), prior=prior))

    def _training(self, tasks: Sequence[Task], index: Index) -> Parcel:
        packer = Packer(self.setup.transport)
        card = self.roster.members[tasks[0].site].card
        size = card.num_train + card.num_holdout
        node = self.roster.node_of(tasks[0].site)
        kept = NOTHING if node is None else self._kept.get(node, NOTHING)
        specs = pack_tasks(tasks, index, size, self.lending, self.num_trainable, packer, kept)
        return self._parcel(packer, tasks=specs)

    def _parcel(self, packer: Packer, give: Samples | None = None, **header: Any) -> Parcel:
        if give is not None:
            packer.add(give.astype(np.int32), "give")
        return packer.parcel(setup=self.setup.plain(), give=give is not None, **header)

    def _exchange(self, parcels: Mapping[int, Parcel], kind: str) -> dict[int, Parcel]:
        """Ask, and set aside who gives no answer."""
        good = {}
        for node, answer in self.office.exchange(parcels, kind).items():
            try:
                if isinstance(answer, str):
                    raise GarbageError(answer)
                check_version(answer)
            except GarbageError as error:
                self._set_aside(node, str(error), silent=isinstance(answer, str))
                continue
            good[node] = answer
        return dict(sorted(good.items()))

    def _set_aside(self, node: int, why: str, silent: bool = False) -> None:
        self.roster.set_aside(node, why, strike=not silent, silent=silent)
        self.office.record(
            {"set_aside": str(node), "client": self.roster.client_at(node), "why": why}
        )

    def _by_owner(self, rows: Samples, split: Split) -> list[tuple[NodeId, Samples]]:
        """Rows by owner, as their numbers with the owner, in the order given."""
        index = self.roster.index(split)
        owners = index.owner[rows]
        return [
            (NodeId(owner), index.position[rows[owners == owner]])
            for owner in np.unique(owners).tolist()
            if owner >= 0
        ]
