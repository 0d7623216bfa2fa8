from __future__ import annotations

import pytest

from sofa_fl.errors import printable
from sofa_fl.experiment.storage.events import metric_of, score_name
from sofa_fl.report.words import (
    data_title,
    duration,
    method_title,
    number,
    percent,
    said_score,
    score,
    scores_title,
    table_score,
    tally,
    tell,
)
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, Prune, Split
from sofa_fl.topology.tree import NodeId, Tree

N = NodeId


def tree() -> Tree:
    """Clients 0 to 5 in clusters 6 and 7 below 8."""
    parent = {N(8): None, N(6): N(8), N(7): N(8)} | {N(i): N(6 + i % 2) for i in range(6)}
    return Tree(parent, tuple(N(i) for i in range(6)), 9)


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([Graft(N(0), N(7))], ["client 0 moved from cluster 6 to cluster 7"]),
        ([Merge((N(6), N(7)), N(9))], ["clusters 6 and 7 merged into cluster 9"]),
        (
            [Split(N(6), (N(9), N(10)), ((N(0), N(2)), (N(4),))), Prune(N(10))],
            [
                "cluster 6 was split into clusters 9 and 10",
                "cluster 10 was replaced by its only child, client 4",
            ],
        ),
        (
            [Split(N(8), (N(9), N(10)), ((N(6),), (N(7),)))],
            ["the root, cluster 8, was split into clusters 9 and 10 below it"],
        ),
        (
            [Split(N(8), (N(9),), ((N(6),),)), Split(N(7), (N(10), N(11)), ((N(1),), (N(3),)))],
            [
                "some children of cluster 8 became cluster 9 below it",
                "some children of cluster 7 became clusters 10 and 11 below it",
            ],
        ),
        (
            [Graft(N(0), N(7)), Graft(N(2), N(7)), Graft(N(4), N(7)), Prune(N(6))],
            [
                "client 0 moved from cluster 6 to cluster 7",
                "client 2 moved from cluster 6 to cluster 7",
                "client 4 moved from cluster 6 to cluster 7",
                "cluster 6 had no children left and was removed",
            ],
        ),
    ],
)
def test_edits_in_words(edits: list[Edit], told: list[str]) -> None:
    assert tell(edits, tree()) == told


def test_edits_of_clients_with_names() -> None:
    names = {N(0): "cleveland", N(4): "va"}
    leaving = [Leave(N(4)), Leave(N(2))]
    assert tell([Graft(N(0), N(7))], tree(), names) == [
        "cleveland moved from cluster 6 to cluster 7"
    ]
    assert tell([Join(N(9), N(6), None)], tree(), {N(9): "oslo"}) == ["oslo joined cluster 6"]
    assert tell(leaving, tree(), names) == ["va left", "client 2 left"]


def test_values_in_words() -> None:
    assert percent(0.98123) == "98.12%"
    assert percent(None) == percent(float("nan")) == "-"
    assert (duration(-1), duration(65), duration(7265)) == ("0:00", "1:05", "2:01:05")
    assert (number(1, "graft"), number(20000, "sample")) == ("1 graft", "20,000 samples")
    assert tally(["graft", "merge", "graft"]) == "2 grafts, 1 merge"
    assert tally([]) == ""


def test_scores_are_called_by_their_names() -> None:
    assert [metric_of(record) for record in ({}, {"metric": "r2"})] == ["accuracy", "r2"]
    assert [score_name(name) for name in ("accuracy", "r2", "<b>")] == ["accuracy", "R²", "score"]
    assert [score(0.98123, "accuracy", n) for n in (2, 1, 0)] == ["98.12%", "98.1%", "98%"]
    assert [score(-0.98123, "r2", n) for n in (2, 1, 0)] == ["-0.981", "-0.98", "-0.98"]
    assert score(None, "r2") == score(float("nan"), "r2") == "-"
    assert (said_score(0.5, "accuracy"), said_score(-2.0, "r2")) == ("50.00%", "R² -2.000")
    assert scores_title("accuracy") == "Accuracy of the clients in %"
    assert scores_title("r2") == "R² of the clients"
    assert (table_score(0.5, "accuracy"), table_score(0.5, "r2")) == ("50.00", "0.500")


def test_control_characters_are_spelled_out() -> None:
    assert printable("\x1b[31mred\n\u202eü 😀") == "\\x1b[31mred\\n\\u202eü 😀"


def test_a_run_says_what_its_method_and_its_data_are_called() -> None:
    config = {"method": "x.y:Mine", "title": "Mine", "data": {"name": "own"}}
    assert (method_title(config), data_title(config)) == ("Mine", "own data")
    config = {"method": "sofa", "data": {"name": "mnist"}}
    assert (method_title(config), data_title(config)) == ("sofa", "mnist")
