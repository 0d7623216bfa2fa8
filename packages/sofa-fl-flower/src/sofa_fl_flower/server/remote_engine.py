"""The engine of a deployment: tasks and exams are messages to the machines that own the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, Samples
from sofa_fl.engine.base import Exam, Outcome, Score, Task
from sofa_fl.engine.task_codec import Embedding, Header
from sofa_fl.models.flat import IdentityDict, Vector
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build
from sofa_fl_flower.server.exchange import Exchange, accepted, flaw_of_answer
from sofa_fl_flower.server.received import Received
from sofa_fl_flower.server.roster import Roster
from sofa_fl_flower.server.row_owners import RowOwners
from sofa_fl_flower.server.sample_relay import SampleRelay, train_on_pool
from sofa_fl_flower.server.task_messages import (
    KnownModels,
    mean_score,
    pack_exam,
    pack_request,
    pack_tasks,
    read_outcomes,
    read_scores,
    rows_of_others,
)
from sofa_fl_flower.transport.message_checks import MessageError, RefusalError, check_samples
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage

NO_ROWS: Samples = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _ExamMessage:
    """The exams of one machine, which of all exams each is a part of, and on how many samples."""

    builder: MessageBuilder
    headers: list[Header] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class RemoteEngine:
    """Asks machines; for one that is absent or answers wrongly there is no outcome and no score."""

    def __init__(
        self,
        exchange: Exchange,
        roster: Roster,
        setup: RunSetup,
        factory: NetworkFactory,
        received: Received | None = None,
    ) -> None:
        self.exchange, self.roster, self.setup, self.factory = exchange, roster, setup, factory
        self.received = received or Received()
        self.relay = SampleRelay()
        self._size = len(self.initial(0))
        self._prefetch = NO_ROWS
        self._models: dict[int, KnownModels] = {}  # by machine, which it still holds
        self._scores: IdentityDict[Score] = IdentityDict()  # of exams since the last training

    @cached_property
    def num_trainable(self) -> int:
        return FlatNetwork(build(self.factory, 0)).num_trainable

    @cached_property
    def num_head(self) -> int:
        return FlatNetwork(build(self.factory, 0)).num_head

    def initial(self, seed: int) -> Vector:
        return FlatNetwork(build(self.factory, seed)).vector

    def prefetch(self, rows: Samples) -> None:
        """Ask for these samples together with the next exams: other machines will need them."""
        self._prefetch = rows

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        asked = list(tasks)
        owners = self.roster.row_owners("train")
        needed = np.concatenate([NO_ROWS, *(rows_of_others(task, owners) for task in asked)])
        self._fetch(np.unique(needed))
        by_machine: dict[int, list[int]] = {}
        outcomes: list[Outcome | None] = [None] * len(asked)
        for number, task in enumerate(asked):
            if task.site not in self.roster.members:  # a cluster, which trains on its pool
                format = self.roster.expected.format
                outcomes[number] = train_on_pool(task, self.relay, format, self.setup, self.factory)
            elif (machine := self.roster.machine_of(task.site)) is not None:
                by_machine.setdefault(machine, []).append(number)
        self._train_there(asked, by_machine, owners, outcomes)
        self.relay.drop_all_but(needed)
        self._scores.clear()
        return outcomes

    def _train_there(
        self,
        asked: Sequence[Task],
        by_machine: Mapping[int, list[int]],
        owners: RowOwners,
        outcomes: list[Outcome | None],
    ) -> None:
        """Let machines train the tasks that are theirs, by number, and add what came of them."""
        messages = {
            machine: self._training(machine, [asked[i] for i in numbers], owners)
            for machine, numbers in by_machine.items()
        }
        self._models = {}

        def read(machine: int, answer: WireMessage) -> None:
            numbers = by_machine[machine]
            wanted = [asked[i] for i in numbers]
            found = read_outcomes(answer, wanted, self._size, self.setup.transport)
            self.roster.note_work(machine)
            self._known(machine).add_trained(found, answer)
            for number, outcome in zip(numbers, found):
                outcomes[number] = outcome

        self._ask(messages, "train", read)

    def evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        """Score exams; none is asked twice between two trainings, since samples do not change."""
        keys = [(exam.params, exam.samples, exam.split, exam.prior is not None) for exam in exams]
        new: IdentityDict[Exam] = IdentityDict()
        for key, exam in zip(keys, exams):
            if key not in self._scores:
                new[key] = exam
        scores: IdentityDict[Score] = IdentityDict()
        scores.update(zip(new, self._evaluate(list(new.values()))))
        self._scores.update((key, score) for key, score in scores.items() if score.num_samples)
        return [self._scores[key] if key in self._scores else scores[key] for key in keys]

    def _evaluate(self, exams: Sequence[Exam]) -> list[Score]:
        wanted = self._wanted(self._prefetch)
        self._prefetch = NO_ROWS
        parts = {machine: _ExamMessage(self._builder()) for machine in wanted}
        owners = {split: self.roster.row_owners(split) for split in {e.split for e in exams}}
        for number, exam in enumerate(exams):
            for client, positions in owners[exam.split].by_client(exam.samples):
                if (machine := self.roster.machine_of(client)) is None:
                    continue
                part = parts.setdefault(machine, _ExamMessage(self._builder()))
                known = self._known(machine)
                rows = self.roster.members[client].rows
                header = pack_exam(exam, positions, rows, part.builder, known)
                part.headers.append(header)
                part.numbers.append(number)
                part.sizes.append(len(getattr(rows, header["split"])))  # of the whole split
        messages = {
            machine: self._message(part.builder, wanted.get(machine), exams=part.headers)
            for machine, part in parts.items()
        }
        scores: list[list[Score]] = [[] for _ in exams]

        def read(machine: int, answer: WireMessage) -> None:
            part = parts[machine]
            found = read_scores(answer, part.sizes)
            self._take_samples(machine, answer, wanted.get(machine))
            self._known(machine).add_sent(part.builder, answer)
            for number, score in zip(part.numbers, found):
                scores[number].append(score)

        self._ask(messages, "evaluate", read)
        return [mean_score(found) for found in scores]

    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]:
        messages, weights = {}, {}
        for client, positions in self.roster.row_owners("train").by_client(samples):
            if (machine := self.roster.machine_of(client)) is None:
                continue
            builder, known = self._builder(), self._known(machine)
            asked = [Embedding(model, samples) for model in models]
            headers = [pack_request(one, builder, known) for one in asked]
            messages[machine] = self._message(builder, embeds=headers)
            weights[machine] = len(positions)
        features: list[NDArray[np.float64]] = []
        counts: list[int] = []

        def read(machine: int, answer: WireMessage) -> None:
            names = answer.value("embeds", list)
            rows = [answer.array(name, "float64", (None,)) for name in names]
            sizes = {len(row) for row in (*rows, *(known[0] for known in features[:1]))}
            if len(names) != len(models) or len(sizes) != 1:
                raise MessageError(
                    f"the answer must have {len(models)} rows with the same number of features"
                )
            if not all(np.isfinite(row).all() for row in rows):
                raise MessageError("features must be finite numbers")
            features.append(np.stack(rows))
            counts.append(weights[machine])

        self._ask(messages, "evaluate", read)
        if not features:
            raise MessageError(
                "sofa.position=latent needs the features of at least one machine, but none "
                "answered; use sofa.position=weights"
            )
        return np.average(np.stack(features), axis=0, weights=counts)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _fetch(self, rows: Samples) -> None:
        """Ask the owners for the samples that are not here yet."""
        wanted = self._wanted(rows)
        messages = {
            machine: self._message(self._builder(), positions)
            for machine, positions in wanted.items()
        }
        self._ask(messages, "evaluate", lambda m, a: self._take_samples(m, a, wanted[m]))

    def _wanted(self, rows: Samples) -> dict[int, Samples]:
        """Which of these samples to ask each machine for, by their positions there."""
        wanted = {}
        missing = self.relay.missing(rows)
        for client, positions in self.roster.row_owners("train").by_client(missing):
            if (machine := self.roster.machine_of(client)) is not None:
                wanted[machine] = positions
        return wanted

    def _take_samples(self, machine: int, answer: WireMessage, asked: Samples | None) -> None:
        """Keep the samples that a machine gave, and note which it refused."""
        if asked is None:
            return
        client = self.roster.client_of(machine)
        assert client is not None
        member = self.roster.members[client]
        format = self.roster.expected.format
        gave = answer.array("gave", "int32", (None,)).astype(np.int64)
        x = answer.array("gave_x", format.input[0], (len(gave), *format.input[1]))
        y = answer.array("gave_y", format.target[0], (len(gave), *format.target[1]))
        if not np.isin(gave, asked).all() or len(np.unique(gave)) < len(gave):
            raise MessageError(
                "a machine must give only samples that it was asked for, each of them once"
            )
        check_samples(Arrays(x, y, format.scale, format.shift), self.setup.num_outputs)
        self.relay.put(member.rows.train[gave], x, y)
        self.relay.refuse(member.rows.train[np.setdiff1d(asked, gave)])

    def _training(self, machine: int, tasks: Sequence[Task], owners: RowOwners) -> WireMessage:
        builder, known = self._builder(), self._known(machine)
        member = self.roster.members[tasks[0].site]
        relay = self.relay if member.profile.receives else SampleRelay()
        headers = pack_tasks(tasks, owners, member.rows.train, relay, builder, known)
        return self._message(builder, tasks=headers)

    def _builder(self) -> MessageBuilder:
        return MessageBuilder(self.setup.transport)

    def _known(self, machine: int) -> KnownModels:
        return self._models.setdefault(machine, KnownModels())

    def _message(
        self, builder: MessageBuilder, give: Samples | None = None, **header: Any
    ) -> WireMessage:
        if give is not None:
            builder.add(give.astype(np.int32), "give")
        return builder.message(setup=self.setup.to_dict(), give=give is not None, **header)

    def _ask(
        self,
        messages: Mapping[int, WireMessage],
        kind: str,
        read: Callable[[int, WireMessage], None],
    ) -> None:
        """Read the answers of all machines; set those aside that have none that can be read."""
        for machine, answer in sorted(self.exchange.ask(messages, kind).items()):
            client = self.roster.client_of(machine)
            try:
                if client is not None:
                    self.received.add(client, accepted(answer))
                read(machine, accepted(answer))
            # Whatever one machine sent, the run goes on without it.
            except Exception as error:
                why = flaw_of_answer(error)
                self._models.pop(machine, None)  # it may have lost the models that it had
                silent = isinstance(answer, str) or isinstance(error, RefusalError)
                self.roster.set_aside(machine, why, strike=not silent, silent=silent)
                self.exchange.record({"set_aside": str(machine), "client": client, "why": why})
        self.received.save()
