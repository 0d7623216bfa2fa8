"""Ready scripts of how a federation changes: who takes up which concept, who comes, who goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from sofa_fl.data.concepts import Concept, Phase, Script
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

ScenarioName = Literal["none", "swap", "emerge", "converge", "rotate", "recur", "churn", "years"]
TURNING = ("emerge", "rotate", "recur")  # these show some clients what none has seen


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioConfig:
    """How the clients' data change during a run.

    Attributes:
        name: `swap`: some clients of every group switch to the next group. `emerge`: some clients
            of the first group form a new group. `converge`: the second group becomes like the
            first. `rotate`: every other group rotates slowly. `recur`: like `emerge`, but
            everything returns to the original state later. `churn`: some clients of every group
            leave for good, and new ones join. `years`: the days of `weather` come in order,
            starting with those up to 2009.
        at: The round in which the change happens or begins.
        fraction: The fraction of a group's clients that change, or leave and are replaced: at least
            one, and not all if there are two or more.
        lasts: The number of rounds for which `rotate` rotates, after which `recur` returns, or that
            a year lasts in `years`.
        degrees: The angle by which `rotate` rotates per round.
    """

    name: ScenarioName = "none"
    at: Annotated[int, Ge(1)] = 10
    fraction: Annotated[float, Interval(gt=0, lt=1)] = 1 / 3
    lasts: Annotated[int, Ge(1)] = 5
    degrees: Annotated[float, Gt(0)] = 3.0


def check_playable(
    name: ScenarioName,
    num_rotations: int,
    num_swaps: int,
    *,
    shape: tuple[int, ...],
    has_classes: bool,
) -> None:
    """Refuse a scenario that samples of this shape, with or without classes, cannot play.

    Groups differ by how images are turned and by what classes are called, so there must be images
    for the one and classes for the other.
    """
    if name == "years":
        raise DataError(
            "data.scenario.name=years needs data in order of years; set data.name=weather"
        )
    has_images = len(shape) >= 2
    given = (
        f"got data.scenario.name={name}, data.num_rotations={num_rotations}, "
        f"data.num_swaps={num_swaps}"
    )
    if not has_images and not has_classes:
        raise DataError(
            "a scenario rotates images or swaps classes, which is not possible with inputs of "
            f"shape {shape} and numeric targets; pass sofa_fl.FederatedData with your own stages "
            "instead"
        )
    if not has_images and (name in TURNING or num_rotations > 1 or num_swaps < 2):
        raise DataError(
            f"inputs of shape {shape} are not images, so they cannot be rotated; use the scenario "
            "swap, converge or churn, with data.num_rotations=1 and data.num_swaps of at least 2; "
            f"{given}"
        )
    if not has_classes and (num_swaps > 1 or num_rotations < 2):
        raise DataError(
            "numeric targets have no classes to swap; scenarios need data.num_swaps=1 and "
            f"data.num_rotations of at least 2; {given}"
        )


def script_of(
    config: ScenarioConfig, groups: Sequence[int], concepts: Sequence[Concept], seed: int
) -> Script:
    """The script of a scenario, of clients in `groups`, each with the concept of that number.

    Clients that come later have the numbers after those.
    """
    if len(concepts) < 2 and config.name != "none":
        raise DataError(
            f"data.scenario.name={config.name} needs at least two groups of clients, got one; "
            "raise data.num_rotations or data.num_swaps"
        )
    first = {client: concepts[group] for client, group in enumerate(groups)}
    some = _some(groups, config.fraction, seed)
    halfway = 180 / len({concept.degrees for concept in concepts})  # to the next rotation
    new = replace(concepts[0], degrees=concepts[0].degrees + halfway)
    emerged = {**first, **dict.fromkeys(some[0], new)}
    at = config.at
    match config.name:
        case "none" | "years":  # the latter is of the data themselves, not of groups
            later = []
        case "swap":
            after = [*concepts[1:], concepts[0]]
            moved = {c: after[group] for group, clients in some.items() for c in clients}
            later = [Phase(at, first | moved)]
        case "emerge":
            later = [Phase(at, emerged)]
        case "converge":
            second = [client for client, group in enumerate(groups) if group == 1]
            later = [Phase(at, first | dict.fromkeys(second, concepts[0]))]
        case "rotate":
            turning = [client for client, group in enumerate(groups) if group % 2 == 0]
            later = [
                Phase(at + step, first | _turned(first, turning, (step + 1) * config.degrees))
                for step in range(config.lasts)
            ]
        case "recur":
            later = [Phase(at, emerged), Phase(at + config.lasts, first)]
        case "churn":
            gone = [client for clients in some.values() for client in clients]
            come = {len(groups) + k: first[client] for k, client in enumerate(gone)}
            stay = {client: concept for client, concept in first.items() if client not in gone}
            later = [Phase(at, stay | come)]
    return [Phase(0, first), *later]


def _some(groups: Sequence[int], fraction: float, seed: int) -> dict[int, list[int]]:
    """Clients of every group, drawn: as many as `fraction` says, at least one.

    Not all of them, unless there is but one.
    """
    found: dict[int, list[int]] = {}
    for group in sorted(set(groups)):
        clients = [client for client, other in enumerate(groups) if other == group]
        order = rng_for(seed, "scenario", group).permutation(clients).tolist()
        found[group] = sorted(order[: max(1, min(round(fraction * len(order)), len(order) - 1))])
    return found


def _turned(
    first: Mapping[int, Concept], clients: Sequence[int], degrees: float
) -> dict[int, Concept]:
    return {c: replace(first[c], degrees=first[c].degrees + degrees) for c in clients}
