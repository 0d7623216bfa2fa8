"""What is wrong with a configuration is said before torch is loaded, which takes seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

WRONG = {
    "a misspelt key": (["local.lerning_rate=1"], "did you mean local.learning_rate?"),
    "one in a section of a section": (["data.csv.targt=a"], "did you mean data.csv.target?"),
    "a misspelt section": (["sofaa.eta=1"], "did you mean sofa?"),
    "a wrong type": (["rounds=many"], "rounds: input should be a valid integer"),
    "out of range": (["fedprox.pull=-1"], "fedprox.pull: input should be greater than or equal"),
    "wrong together": (["fl_hc.metric=cosine"], "fl_hc.linkage"),
    "an unknown method": (["method=fedavgg"], "did you mean fedavg?"),
    "an unknown preset": (["preset=papers"], "did you mean paper?"),
    "of the data": (["data.name=mnist", "data.alpha=0"], "data.alpha"),
    "of the engine": (["engine=gpu"], "engine: input should be"),
}
COMMANDS = {
    "run": ["run"],
    "compare": ["compare", "sofa", "fedavg"],
    "sweep": ["sweep", "--over", "seed=0,1"],
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_it_is_refused_without_torch(command: list[str], settings: list[str], words: str) -> None:
    if settings[0].startswith("method=") and command[0] == "compare":
        command, settings = ["compare", settings[0].partition("=")[2]], []
    args = [*command, *(word for setting in settings for word in ("--set", setting))]
    code = (
        "import sys\nfrom sofa_fl.cli.main import app\n"
        f"try:\n    app({args})\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout.split() == ["2", "False"]
