"""`sofa-fl demo` and `sofa-fl init`: a first run, and files to start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sofa_fl.cli.options import Quiet
from sofa_fl.cli.run import with_progress, with_report
from sofa_fl.cli.screen import console, open_page, put, shell
from sofa_fl.errors import RunError

if TYPE_CHECKING:
    from sofa_fl.cli.progress import Follower
    from sofa_fl.data.federated_data import FederatedData
    from sofa_fl.experiment.run.config import Config
    from sofa_fl.experiment.run.loop import RunResult

GROUPS = ("upright", "left", "upside-down", "right")
SIZE = 4  # clients of a group
NEWCOMERS, CHANGE, ROUNDS = 3, 6, 9  # in which round they come, in which data change, and the last
STORY = f"""\
{(len(GROUPS) - 1) * SIZE} clients see handwritten digits: upright, turned left, or upside down.
SOFA-FL is not told which client sees what; only the names show it, for you.
In round {NEWCOMERS}, {SIZE} clients join; they see digits turned right.
In round {CHANGE}, one client of each group starts to see what the next group sees.
"""
TEMPLATES = Path(__file__).parent / "templates"
FILES = {"config.yaml": "config.yaml", "train.py": "train.py.txt"}


def demo(
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of every random draw.")] = 0,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Run folder; by default a new one under runs/."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--open", help="Also open the report in a browser.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Watch a tree find groups of clients, grow, and follow changing clients, in half a minute."""
    if not quiet:
        typer.echo(STORY, err=True)

    def start(follower: Follower) -> RunResult:
        from sofa_fl.experiment.run import launch
        from sofa_fl.experiment.run.loop import Own

        config = demo_config(seed, out)
        data = demo_data(config)
        return launch.run(config, Own(data), observers=with_report(follower))

    result = with_progress(start, quiet=quiet)
    report = result.run / "report.html"
    if quiet:
        put(str(result.run))
    else:
        from sofa_fl.cli.show import show_tree
        from sofa_fl.report.history import read_round

        put("\n".join(story_of(result.run)) + "\n")
        show_tree(console(), read_round(result.run), every=True)
        put(f"\nTo replay it, open {shell(report)} in a browser and press the triangle.")
    if browser:
        open_page(report)


def demo_config(seed: int, out: str | None) -> Config:
    from sofa_fl.experiment.run.config import load_config

    values = {
        "seed": seed,
        "rounds": ROUNDS,
        "warmup": 40,
        "out": out,
        "data": {"name": "turned digits", "num_train": 9600, "num_test": 1600, "partition": "iid"},
        "model": {"name": "mlp", "hidden": 100},
        "local": {"batches": 30, "batch_size": 32},
        "sharing": {"ratio": 0.1},
    }
    return load_config(values)


def demo_data(config: Config) -> FederatedData:
    """MNIST, turned by quarters: a group per quarter, and who sees what from which round on."""
    from sofa_fl.data.concepts import Concept, Phase
    from sofa_fl.data.federate import federate

    views = [Concept(90.0 * quarter) for quarter in range(len(GROUPS))]
    last = (len(GROUPS) - 1) * SIZE  # the first newcomer
    everybody = {client: views[client // SIZE] for client in range(len(GROUPS) * SIZE)}
    first = {client: view for client, view in everybody.items() if client < last}
    movers = {SIZE * (k + 1) - 1: views[(k + 1) % len(views)] for k in range(len(GROUPS))}
    script = [Phase(0, first), Phase(NEWCOMERS, everybody), Phase(CHANGE, everybody | movers)]
    data = federate(replace(config.data, name="mnist"), config.seed, script=script)
    names = tuple(f"{group}-{number + 1}" for group in GROUPS for number in range(SIZE))
    return replace(data, names=names)


def story_of(run: Path) -> list[str]:
    """What happened in each round, and how well the final tree agrees with the true groups."""
    from sofa_fl.experiment.storage.run_folder import RunFolder
    from sofa_fl.report.history import read_rounds
    from sofa_fl.report.words import changes_in_words

    rounds, events = read_rounds(run), list(RunFolder(run).events())
    first = f"{len(rounds[0].tree.clusters) - 1} groups of {len(rounds[0].tree.clients)} clients"
    lines = [f"Warm-up: the tree has {first}."]
    for record, event in zip(rounds[1:], events[1:]):
        if news := changes_in_words(event.get("data", {})):
            lines.append(f"Round {record.round}: {news}.")
        lines += [f"  {sentence}" for sentence in record.told]
    groups = events[-1]["groups"]
    lines.append(
        f"End: the adjusted Rand index of tree and true groups is {groups['ari'][0]:.2f} (1 means "
        f"identical), and the mean accuracy is {rounds[-1].mean:.1%}."
    )
    return lines


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[DIR]", help="Folder to write to; by default the current one."),
    ] = Path(),
) -> None:
    """Write a small configuration, and a script with a network and data to replace with yours."""
    from sofa_fl.experiment.storage.disk import explained, write_text

    if there := [name for name in FILES if (folder / name).exists()]:
        raise RunError(f"{folder / there[0]} already exists; choose another folder")
    with explained(f"cannot create the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, template in FILES.items():
        write_text(folder / name, (TEMPLATES / template).read_text(encoding="utf-8"))
    go = f"cd {shell(folder)} && " if folder.resolve() != Path.cwd() else ""
    wrote = " and ".join(shell(folder / name) for name in FILES)
    put(f"wrote {wrote}; to try it, run: {go}python train.py")
