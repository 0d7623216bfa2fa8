"""The examples in the docs are what SHAPE does, not what somebody drew."""

from __future__ import annotations

import pytest
from edit_examples import EXAMPLES, Example

from sofa_fl.topology.edits import Graft, Merge, Prune, Split

KINDS: dict[str, list[type]] = {
    "Graft": [Graft],
    "Merge": [Merge],
    "Split": [Split],
    "Prune": [Graft, Prune],
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_shape_makes_the_edit_and_only_once_clients_have_moved(example: Example) -> None:
    assert example.shaped(example.before)[1] == []
    assert [type(edit) for edit in example.shaped(example.now)[1]] == KINDS[example.title]
