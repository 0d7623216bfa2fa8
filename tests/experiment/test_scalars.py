from __future__ import annotations

from sofa_fl.experiment.tracking.observers import scalars

EVENT = {
    "event": "round", "round": 3,
    "client": {"mean": 0.75, "std": 0.25, "min": 0.5, "gap": 0.5, "jain": 0.9, "bottom10": 0.5},
    "local_loss": [1.0, 0.5], "path_loss": {"0": {"3": 2.0, "0": 1.0}, "1": {"3": 2.0}},
    "tree": {"4": None, "3": 4, "0": 3, "1": 3, "2": 4},
    "edits": [{"edit": "graft"}, {"edit": "merge"}, {"edit": "graft"}],
    "bytes_down": 70, "bytes_up": 50, "seconds": 5.0, "disclosed": [0.5, 0.0],
}  # fmt: skip


def test_the_numbers_of_a_round() -> None:
    before = {**EVENT, "bytes_down": 40, "bytes_up": 30, "seconds": 3.5}
    assert scalars(EVENT, before) == {
        "accuracy/mean": 0.75, "accuracy/worst": 0.5, "accuracy/std": 0.25,
        "loss/local": 0.75, "loss/held out": 1.5, "tree/levels": 2, "tree/clusters": 2,
        "edits/all": 3, "edits/graft": 2, "edits/merge": 1,
        "cost/bytes down": 30, "cost/bytes up": 20, "cost/seconds": 1.5, "sharing/disclosed": 0.25,
    }  # fmt: skip
    assert scalars(EVENT)["cost/seconds"] == 5.0


def test_the_objective_term_by_term() -> None:
    values = scalars({**EVENT, "objective": {"value": 3.0, "loss": 2.0, "siblings": 1.0}})
    assert values["objective/value"] == 3
    assert values["objective/siblings"] == 1


def test_what_there_is_not_is_left_out() -> None:
    bare = {**EVENT, "local_loss": [], "path_loss": {}, "tree": {"0": None}, "edits": []}
    values = scalars(bare)
    assert not {"loss/local", "loss/held out"} & values.keys()
    assert (values["tree/levels"], values["tree/clusters"], values["edits/all"]) == (0, 0, 0)
