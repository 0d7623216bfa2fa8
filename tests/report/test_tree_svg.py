from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sofa_fl.report.history import Round
from sofa_fl.report.tree_svg import colour, lay_out, tree_svg
from sofa_fl.topology.tree import NodeId, Tree, flat_tree

SVG = "{http://www.w3.org/2000/svg}"


def record(tree: Tree) -> Round:
    accuracy = {client: 0.9 + 0.001 * (client % 50) for client in tree.clients}
    return Round(
        run=Path("run"),
        method="sofa",
        title="SOFA-FL",
        data="mnist",
        seed=0,
        round=3,
        rounds=20,
        tree=tree,
        accuracy=accuracy,
        mean=0.9512,
        worst=0.9,
        loss={},
        pool={},
        edits=(),
        told=(),
    )


def nested(num_clients: int) -> Tree:
    """Clusters of three clients, and a root over them."""
    parent: dict[NodeId, NodeId | None] = {NodeId(2 * num_clients): None}
    for client in range(num_clients):
        cluster = NodeId(num_clients + client // 3)
        parent[NodeId(client)] = cluster
        parent[cluster] = NodeId(2 * num_clients)
    return Tree(parent, tuple(NodeId(i) for i in range(num_clients)), 2 * num_clients + 1)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_says_what_it_shows() -> None:
    svg = tree_svg(record(nested(9)))
    shown = texts(svg)
    assert "SOFA-FL on mnist, after round 3 of 20" in shown
    assert any("95.12%" in text and "90.00%" in text for text in shown)
    assert {"clients", "level 1", "level 2", "cluster 9", "90.0%", "90.8%"} <= set(shown)
    assert {str(client) for client in range(9)} <= set(shown)


def test_is_self_contained() -> None:
    svg = tree_svg(record(nested(9)))
    addresses = svg.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in addresses
    assert "url(#" in svg
    for tag in ("<script", "<image", "<style", "@import", "href"):
        assert tag not in svg


def test_same_values_same_picture() -> None:
    assert tree_svg(record(nested(12))) == tree_svg(record(nested(12)))


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"&\x1b[31m', "[red]", "x" * 500])
def test_names_are_text(name: str) -> None:
    svg = tree_svg(replace(record(nested(6)), data=name, method=name))
    root = ElementTree.fromstring(svg)
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in svg


@pytest.mark.parametrize("num_clients", [1, 2, 24, 25, 60, 61, 400])
def test_nothing_leaves_the_picture_or_overlaps(num_clients: int) -> None:
    tree = flat_tree([NodeId(0)]) if num_clients == 1 else nested(num_clients)
    layout = lay_out(tree)
    assert all(0 < x < layout.width for x in layout.x.values())
    assert all(0 < y < layout.height for y in layout.y.values())
    positions = sorted(layout.x[client] for client in tree.clients)
    radius = min(16.0, 0.42 * layout.step)
    assert all(b - a > 2 * radius for a, b in pairwise(positions))
    ElementTree.fromstring(tree_svg(record(tree)))


def test_a_regression_is_called_by_its_name() -> None:
    tree = nested(9)
    scores = {client: 0.4 - 0.5 * client for client in tree.clients}
    shown = replace(record(tree), accuracy=scores, mean=-1.6, worst=-3.6, metric="r2")
    svg = tree_svg(shown)
    assert "ccuracy" not in svg
    assert "%" not in svg.replace('%" stop', "")  # but for where colours are
    words = texts(svg)
    assert {"client i, by R²", "-3.60", "0.40", "-0.10"} <= set(words)
    assert any("client R² -1.600 on average, -3.600 for the worst" in text for text in words)
    assert f'fill="{colour(0)}"' in svg
    assert f'fill="{colour(1)}"' in svg


def test_client_without_test_samples() -> None:
    shown = record(nested(6))
    assert "-" in texts(tree_svg(replace(shown, accuracy={**shown.accuracy, NodeId(2): None})))


def test_colours_run_from_dark_to_light() -> None:
    assert (colour(-1), colour(0), colour(1), colour(2)) == ("#440154",) * 2 + ("#fde725",) * 2
    green = [int(colour(share / 20)[3:5], 16) for share in range(21)]
    assert green == sorted(green)
