from __future__ import annotations

from rich.console import Console
from synthetic_run import events

from sofa_fl.cli.panel import Panel, sparks


def shown(panel: Panel, height: int, width: int = 70) -> list[str]:
    screen = Console(width=width, markup=False)
    with screen.capture() as captured:
        screen.print(panel.draw(height))
    return captured.get().splitlines()


def test_scores_edits_and_a_tree() -> None:
    panel, made = Panel(), events(20, 12)
    for event in made:
        panel.take(event)
    lines = shown(panel, 20)
    last = made[-1]
    worst = min(range(20), key=lambda client: last["accuracies"][client])
    assert f"{last['client']['mean']:.2%}" in lines[0]
    assert f"{last['client']['min']:.2%}" in lines[1]
    assert f"client {worst}" in lines[1]
    assert sum(line.startswith("round ") for line in lines) == 4
    for cluster in set(last["tree"].values()) - {None}:
        assert any(f"cluster {cluster} " in line for line in lines)


def test_a_regression_is_called_by_its_name() -> None:
    panel, made = Panel(), events(20, 2, extra={"metric": "r2"})
    for event in made:
        panel.take(event)
    text = "\n".join(shown(panel, 20))
    assert f"mean   R² {made[-1]['client']['mean']:.3f}" in text
    assert "%" not in text


def test_it_keeps_to_its_room() -> None:
    panel = Panel()
    for event in events(400, 8):
        panel.take(event)
    for height in (2, 3, 6, 12, 22):
        assert len(shown(panel, height, width=40)) <= height
    assert any("more clusters" in line for line in shown(panel, 12))


def test_who_is_missing_is_told() -> None:
    panel, [event] = Panel(), events(20, 0)
    panel.take(event | {"absent": [3, 4], "set_aside": {"5": "not finite"}})
    said = "2 clients absent, 1 update set aside (client 5: not finite)"
    assert shown(panel, 10)[2] == said


def test_sparks() -> None:
    assert sparks([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparks([0.3, 0.3]) == "▁▁"
