"""Which way clients are stacked: the fastest that does what a loop over clients does."""

from __future__ import annotations

from functools import partial

from sofa_fl.engine.learner import Learner
from sofa_fl.engine.likeness import StackComparison
from sofa_fl.engine.stack import LayerStack, MakeStack, MappedStack
from sofa_fl.engine.stacking import why_not


def choose_way(learner: Learner) -> tuple[MakeStack | None, bool, str]:
    """How clients are stacked, if they are; whether exams are taken alone; what to say of it."""
    compared = StackComparison(learner)
    of_batches = compared.of_batches()
    troubles: dict[MakeStack, str] = {}
    scored_alone: MakeStack | None = None  # the first way to train, if it is none to score
    for make in _makes(learner):
        if (trouble := compared.in_training(make)) is None:
            way = (
                f"clients are stacked {'layer by layer' if make is LayerStack else 'by torch.func'}"
            )
            if (trouble := of_batches or compared.in_scores(make)) is None:
                return make, False, way
            if scored_alone is None:
                scored_alone = make
                said = f"{way} in training; models are scored one by one, since {trouble}"
            if of_batches:
                break
        troubles[make] = trouble
    if scored_alone is not None:
        return scored_alone, True, said
    return None, True, f"clients are trained one by one, since {troubles[MappedStack]}"


def _makes(learner: Learner) -> list[MakeStack]:
    """The ways there are, the fastest first."""
    learner.flat.kept.restore()
    general: list[MakeStack] = [MappedStack, partial(MappedStack, own=True)]
    return general if why_not(learner.network) else [LayerStack, *general]
