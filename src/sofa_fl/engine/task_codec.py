"""What is asked of a worker, as a header of plain values with the models beside it.

Worker processes, Ray workers and the machines of a deployment are all sent this form. They differ
in where a model goes and what it is called there: `name` puts a model in its place and returns its
name, `find` turns the name back into the model. So a model that many tasks use travels once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import frexp, ldexp
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import Exam, Outcome, Pull, Task
from sofa_fl.engine.exams import Sitting, Sums
from sofa_fl.engine.learner import pull_terms
from sofa_fl.models.flat import Model, Vector, as_vector, check_size


@dataclass(frozen=True, slots=True)
class Embedding:
    """A request for the mean features of a model on these samples."""

    model: Model
    samples: Samples


Request = Task | Exam | Sitting | Embedding
R = TypeVar("R", bound=Request)
Header = dict[str, Any]
MODEL_FIELD: dict[type[Any], str] = {
    Task: "start", Exam: "params", Sitting: "model", Embedding: "model"
}  # fmt: skip


def encode(request: Request, name: Callable[[Model], Any]) -> Header:
    """The fields of a request, with names in place of models."""
    header = {field.name: getattr(request, field.name) for field in fields(request)}
    model = MODEL_FIELD[type(request)]
    header[model] = name(header[model])
    if isinstance(request, Task):
        header["pulls"] = _encode_pulls(request.pulls, name)
    return header


def decode(kind: type[R], header: Mapping[str, Any], find: Callable[[Any], Model]) -> R:
    """The request that `encode` was given."""
    values = dict(header)
    model = MODEL_FIELD[kind]
    values[model] = find(values[model])
    if kind is Task:
        values["pulls"] = _decode_pulls(values["pulls"], find)
    return kind(**values)


class WorkerEngine(Protocol):
    """The part of an engine that a worker needs."""

    def train(self, tasks: Iterable[Task]) -> list[Outcome]: ...
    def sums(self, asked: Sequence[Sitting]) -> list[list[Sums]]: ...
    def embed(self, models: Sequence[Vector], samples: Samples) -> NDArray[Any]: ...


def run_requests(engine: WorkerEngine, requests: Sequence[Request]) -> list[Any]:
    """Answer requests of one kind, in order: outcomes, sums of sittings, or features."""
    if tasks := [request for request in requests if isinstance(request, Task)]:
        return engine.train(tasks)
    if asked := [request for request in requests if isinstance(request, Sitting)]:
        return engine.sums(asked)
    embeddings = [request for request in requests if isinstance(request, Embedding)]
    return [engine.embed([as_vector(e.model)], e.samples)[0] for e in embeddings]


def _encode_pulls(pulls: tuple[Pull, ...], name: Callable[[Model], Any]) -> Header | None:
    """One model for any number of pulls: their sum is one pull and a weight decay.

    A worker that is told the sum trains to the same bits: the sum's weight is a power of two, so
    that dividing by it, and taking it from the total weight, rounds nothing.
    """
    if not pulls:
        return None
    if len(pulls) == 1:
        return {"target": name(pulls[0].target), "weight": pulls[0].weight, "decay": 0.0}
    for pull in pulls:
        check_size(pull.target, len(pulls[0].target))
    decay, constant = pull_terms(pulls, pulls[0].target)
    weight = ldexp(0.5, frexp(decay / 2)[1])
    target = constant.div_(-2 * weight)
    return {"target": name(target), "weight": weight, "decay": decay / 2 - weight}


def _decode_pulls(header: Mapping[str, Any] | None, find: Callable[[Any], Model]) -> Any:
    if header is None:
        return ()
    target = as_vector(find(header["target"]))
    pull = Pull(target, header["weight"])
    if not header["decay"]:
        return (pull,)
    return pull, Pull(target.new_zeros(1).expand_as(target), header["decay"])
