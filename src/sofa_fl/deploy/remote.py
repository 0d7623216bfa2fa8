"""The engine of a deployment: tasks and exams are messages to the nodes that own the samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.base import Arrays, Samples, Split
from sofa_fl.deploy.lending import Lending
from sofa_fl.deploy.office import Office
from sofa_fl.deploy.roster import Index, Roster
from sofa_fl.deploy.setup import Setup
from sofa_fl.deploy.wire import GarbageError, Packer, Parcel, check_version
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.learner import Learner, Store
from sofa_fl.federation import log_shares
from sofa_fl.models.flat import FlatNetwork, Vector
from sofa_fl.models.mix import identity
from sofa_fl.models.networks import NetworkFactory, build
from sofa_fl.topology.tree import NodeId

NOT_SCORED = Score(float("nan"), float("nan"), 0)


class RemoteEngine:
    """Asks nodes; who is not there, or gives no proper answer, has no outcome and no score."""

    def __init__(
        self, office: Office, roster: Roster, setup: Setup, factory: NetworkFactory
    ) -> None:
        self.office, self.roster, self.setup, self.factory = office, roster, setup, factory
        self.lending = Lending()
        self._size = len(self.initial(0))
        self._expected: Samples = np.empty(0, dtype=np.int64)
        self._known: dict[object, tuple[Exam, Score]] = {}  # with the exam: ids must stay taken

    @property
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
        needed = [_foreign(task, index) for task in asked]
        self._borrow(np.unique(np.concatenate([*needed, self._expected[:0]])), index)
        by_node: dict[int, list[int]] = {}
        outcomes: list[Outcome | None] = [None] * len(asked)
        for number, task in enumerate(asked):
            if task.site not in self.roster.members:  # a cluster, which learns from its pool
                outcomes[number] = self._train_here(task)
            elif (node := self.roster.node_of(task.site)) is not None:
                by_node.setdefault(node, []).append(number)
        parcels = {
            node: self._task_parcel([asked[i] for i in numbers], index)
            for node, numbers in by_node.items()
        }
        for node, answer in self._exchange(parcels, "train").items():
            try:
                found = [self._outcome(spec, answer) for spec in answer.value("outcomes", list)]
                if len(found) != len(by_node[node]):
                    raise GarbageError(f"{len(by_node[node])} outcomes expected, got {len(found)}")
            except GarbageError as error:
                self._set_aside(node, str(error))
                continue
            for number, outcome in zip(by_node[node], found):
                outcomes[number] = outcome
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
                    "model": packer.add_model(exam.params),
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
                scores = [_score(values) for values in answer.value("scores", list)]
                if len(scores) != len(numbers):
                    raise GarbageError(f"{len(numbers)} scores expected, got {len(scores)}")
                self._lend(node, answer, wanted.get(node))
            except GarbageError as error:
                self._set_aside(node, str(error))
                continue
            for number, score in zip(numbers, scores):
                found[number].append(score)
        return [_together(scores) for scores in found]

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
            raise GarbageError("no node gave features of its samples; use sofa.place=weights")
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

    def _task_parcel(self, tasks: Sequence[Task], index: Index) -> Parcel:
        """All that a node is to train; samples of others travel along."""
        packer = Packer(self.setup.transport)
        rows = np.unique(np.concatenate([_foreign(task, index) for task in tasks]))
        given = rows[self.lending.has(rows)]
        if len(given):
            x, y = self.lending.get(given)
            packer.add(x, "given_x")
            packer.add(y, "given_y")
        card = self.roster.members[tasks[0].site].card
        size = card.num_train + card.num_holdout
        specs = []
        for task in tasks:
            own = index.owner[task.samples] == task.site
            place = np.where(own, index.position[task.samples], -1)
            found = np.searchsorted(given, task.samples)
            is_given = np.isin(task.samples, given)
            place[is_given] = size + found[is_given]
            specs.append(
                {
                    "start": packer.add_model(task.start),
                    "rows": packer.add(place[place >= 0].astype(np.int32)),
                    "given": bool(len(given)),
                    "batches": task.batches,
                    "seed": task.seed,
                    "pulls": [(packer.add_model(p.target), p.weight) for p in task.pulls],
                    "pace": task.pace,
                    "prior": task.prior is not None,
                }
            )
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
                self._set_aside(node, str(error), strike=not isinstance(answer, str))
                continue
            good[node] = answer
        return dict(sorted(good.items()))

    def _set_aside(self, node: int, why: str, strike: bool = True) -> None:
        self.roster.set_aside(node, why, strike=strike)
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

    def _outcome(self, spec: Any, answer: Parcel) -> Outcome:
        if not isinstance(spec, Mapping):
            raise GarbageError("an outcome must name its arrays")
        params = answer.model(spec.get("params"), self._size, self.setup.transport)
        return Outcome(params, answer.array(spec.get("losses"), "float32", (None,)))


def _foreign(task: Task, index: Index) -> Samples:
    rows: Samples = task.samples[index.owner[task.samples] != task.site]
    return rows


def _score(values: Any) -> Score:
    if not isinstance(values, list) or len(values) != 3:
        raise GarbageError("a score must be a loss, an accuracy and a number of samples")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise GarbageError(f"a score must be numbers, got {values}")
    return Score(float(values[0]), float(values[1]), int(values[2]))


def _together(scores: Sequence[Score]) -> Score:
    """One score of the parts of an exam."""
    if len(scores) == 1:
        return scores[0]
    num = sum(score.num_samples for score in scores)
    if not num:
        return NOT_SCORED
    loss = sum(score.loss * score.num_samples for score in scores) / num
    return Score(loss, sum(s.accuracy * s.num_samples for s in scores) / num, num)
