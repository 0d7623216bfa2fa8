"""What is done before it is needed: exams in an earlier exchange, and work while a GPU is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from sofa_fl.engine.base import Exam, Score
from sofa_fl.models.flat import identity

Evaluate = Callable[[Sequence[Exam]], list[Score]]


class Foreseen:
    """The exams that are foreseen in a round, and the scores of those that were set already.

    An exam that is foreseen and never comes costs an answer, and changes nothing.
    """

    def __init__(self) -> None:
        self._next: list[Exam] = []
        # Exams are known by the ids of what they are made of, so they are held.
        self._known: dict[object, tuple[Score, Exam]] = {}

    def add(self, exams: Sequence[Exam]) -> None:
        """Set these exams with the next ones."""
        self._next += exams

    def scored(self, exams: Sequence[Exam], evaluate: Evaluate) -> list[Score]:
        """The scores of exams; those that are known are not set again."""
        if not self._next and not self._known:
            return evaluate(exams)
        keys = [_key(exam) for exam in exams]
        new = [exam for key, exam in zip(keys, exams) if key not in self._known]
        ahead, self._next = (self._next, []) if new else ([], self._next)
        scores = evaluate([*new, *ahead]) if new else []
        found = iter(scores)
        answers = [self._known[key][0] if key in self._known else next(found) for key in keys]
        self._known |= {_key(exam): (score, exam) for exam, score in zip(ahead, found)}
        return answers


def _key(exam: Exam) -> object:
    """The same for the same model on the same samples."""
    prior, limit = id(exam.prior), exam.max_loss
    return identity(exam.params), id(exam.samples), exam.split, prior, limit


class SpareTime:
    """Work that will be needed soon, and that can be done before it is.

    An engine that waits for a GPU does it meanwhile; with any other, nobody does it in advance.
    """

    def __init__(self) -> None:
        self._work: Callable[[], object] | None = None

    @contextmanager
    def offered(self, work: Callable[[], object]) -> Iterator[None]:
        """Let `work` be done here, once at most."""
        self._work = work
        try:
            yield
        finally:
            self._work = None

    def use(self) -> None:
        """Do what is offered."""
        work, self._work = self._work, None
        if work is not None:
            with suppress(Exception):  # whoever needs it will do it again, and see why it fails
                work()
