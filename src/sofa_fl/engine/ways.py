"""Which way clients are stacked: the fastest that does what a loop over clients does."""

from __future__ import annotations

from functools import partial

from sofa_fl.engine.learner import Learner
from sofa_fl.engine.likeness import Comparison
from sofa_fl.engine.stack import LayerStack, MakeStack, MappedStack
from sofa_fl.engine.stacking import why_not


def choose_way(learner: Learner) -> tuple[MakeStack | None, bool, str]:
    """How clients are stacked, if they are; whether exams are taken alone; what to say of it."""
    compared = Comparison(learner)
    make, reason = _training(learner, compared)
    if make is None:
        return None, True, f"clients are trained one by one, since {reason}"
    way = "layer by layer" if make is LayerStack else "by torch.func"
    if (reason := compared.in_scores(make)) is None:
        return make, False, f"clients are stacked {way}"
    said = f"clients are stacked {way} in training; models are scored one by one, since {reason}"
    return make, True, said


def _training(learner: Learner, compared: Comparison) -> tuple[MakeStack | None, str | None]:
    if not why_not(learner.network) and compared.in_training(LayerStack) is None:
        return LayerStack, None
    if (reason := compared.in_training(MappedStack)) is None:
        return MappedStack, None
    own: MakeStack = partial(MappedStack, own=True)
    if compared.in_training(own) is None:
        return own, None
    return None, reason
