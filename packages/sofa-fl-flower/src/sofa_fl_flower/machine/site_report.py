"""What has left a site in all runs together, in a few lines, from its own records."""

from __future__ import annotations

import json
from pathlib import Path

from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.privacy import Budget
from sofa_fl_flower.machine.site import AUDIT_FILE, open_site
from sofa_fl_flower.machine.site_records import SumRecord

WORDS = {  # of one, and of several
    "models": ("model in the clear", "models in the clear"),
    "masked_models": ("masked model", "masked models"),
    "unmasked_sums": ("sum unmasked", "sums unmasked"),
    "scores": ("score", "scores"),
    "embeds": ("mean feature", "mean features"),
    "bytes": ("byte", "bytes"),
}
MESSAGES, RUNS = ("message", "messages"), ("run", "runs")
SAMPLES = ("different sample", "different samples")


def site_report(policy: Policy) -> list[str]:
    """A line for each kind of thing that left, for the budget, and for what was refused."""
    site = open_site(Path(policy.state))
    text = (Path(policy.state) / AUDIT_FILE).read_text(encoding="utf-8")
    entries = [json.loads(line) for line in text.splitlines()]
    left = [entry.get("left", {}) for entry in entries]
    totals = {name: sum(one.get(name, 0) for one in left) for name in WORDS}
    refused = sum("refused" in entry for entry in entries)
    runs = counted(len({entry.get("run") for entry in entries}), RUNS)
    lines = [f"{counted(len(entries), MESSAGES)} of {runs}, {refused} refused"]
    lines += [counted(number, WORDS[name]) for name, number in totals.items() if number]
    lines.append(counted(len(site.ledger.read()), SAMPLES))
    lines += scores_without_noise(policy, SumRecord(site.sums).num_scores())
    if policy.privacy.epsilon:
        spent = Budget(policy.privacy, site.spent).spent()
        cost = ", ".join(f"{part} {epsilon:.2f}" for part, epsilon in spent.items()) or "nothing"
        lines.append(f"epsilon spent of {policy.privacy.epsilon:g}: {cost}")
    if (most := policy.secure_aggregation.max_clear_models) is not None:
        clear = SumRecord(site.sums).num_clear()
        lines.append(f"models outside a sum: {clear} of at most {most}")
    return lines


def scores_without_noise(policy: Policy, num: int) -> list[str]:
    """How many there were, one for each training included, and what bounds what they tell."""
    if not num:
        return []
    most = "any number" if policy.max_scores is None else f"at most {policy.max_scores:,}"
    scores = counted(num, WORDS["scores"])
    return [f"scores: {num:,} without noise, of {most}; only noise bounds what {scores} can reveal"]


def counted(number: int, words: tuple[str, str]) -> str:
    """A number and what there is of it: `1 score`, `1,200 scores`."""
    one, several = words
    return f"{number:,} {one if number == 1 else several}"
