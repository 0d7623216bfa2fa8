"""What a node needs: with hashes, in the versions of `make setup`, and nothing besides it."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib

from node_requirements import FILE, NEEDED, closure, pinned

LINES = FILE.read_text(encoding="utf-8").splitlines()
VERSIONS = {
    name: version
    for line in LINES
    if (found := re.fullmatch(r"([\w.-]+)==(\S+) \\", line))
    for name, version in [found.groups()]
}
NODE = """
import sys
from importlib.machinery import PathFinder

class NodeFinder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.split(".")[0] in BLOCKED
        return None if absent else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = NodeFinder
import sofa_fl.cli.main, sofa_fl_flower.commands, sofa_fl_flower.flower.client_app
import sofa_fl_flower.flower.supernode, sofa_fl_flower.flower.app_process
from dataclasses import replace
import numpy as np
from sofa_fl.data.own import from_arrays
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineData
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.privacy import SitePrivacy
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.transport.run_setup import RunSetup
from sofa_fl_flower.transport.wire_message import MessageBuilder
from sofa_fl.engine.base import LocalConfig
from sofa_fl.models.config import ModelConfig

rng, model = np.random.default_rng(0), ModelConfig(name="mlp", hidden=4)
x, y = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 2, 200)
data = MachineData(from_arrays(x, y))
policy = Policy(state="/none", model=model, holdout=0.2, privacy=SitePrivacy(epsilon=100.0))
local = LocalConfig(batches=2, batch_size=50)
setup = RunSetup(seed=0, local=local, model=model, num_outputs=2)
here = ClientMachine(data, setup, policy, Site(b"k" * 32))
here.hello()
builder = MessageBuilder()
name = builder.add_model(here.learner.initial(0))
task = dict(start=name, given=None, batches=2, seed=0, pulls=None, prior=True)
exam = dict(params=name, split="holdout", prior=True)
answer = here.answer(builder.message(tasks=[task], exams=[exam]))
assert len(answer.header["outcomes"]) == len(answer.header["scores"]) == 1
print("answered")
"""


def test_every_package_has_hashes_and_the_version_of_the_setup() -> None:
    assert VERSIONS.keys() == set(closure(NEEDED))
    assert VERSIONS.items() <= pinned().items()
    text = "\n".join(LINES)
    for name in VERSIONS:
        block = re.search(rf"^{re.escape(name)}==\S+ \\\n((?:    .*\n?)+)", text, re.MULTILINE)
        assert block is not None
        hashes = block[1].replace("\\", "").split()
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_a_private_node_works_without_everything_else() -> None:
    there = {*VERSIONS, "sofa-fl", "sofa-fl-flower", "torch", *closure(("torch",))}
    known = importlib.metadata.packages_distributions()
    names = {top: {re.sub(r"[-_.]+", "-", d).lower() for d in of} for top, of in known.items()}
    blocked = sorted(top for top, of in names.items() if not of & there)
    assert {"sklearn", "safetensors", "tensorboard", "matplotlib", "ray"} <= set(blocked)
    code = NODE.replace("BLOCKED", repr(set(blocked)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "answered\n", done.stderr


def test_the_package_goes_with_one_version_of_the_core_and_of_flower() -> None:
    core, ours = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (FILE.parents[2], FILE.parent)
    )
    same, flower = ours["dependencies"]
    assert same == f"sofa-fl=={core['version']}"
    assert ours["version"] == core["version"]
    (simulation,) = ours["optional-dependencies"]["simulation"]
    assert simulation == flower.replace("flwr", "flwr[simulation]")
