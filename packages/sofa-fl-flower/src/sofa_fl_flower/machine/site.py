"""What a site keeps for itself: its key, its ledger, and an audit log that only grows."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.storage.disk import append_bytes, write_bytes
from sofa_fl_flower.machine.policy import policy_text
from sofa_fl_flower.machine.sealed_log import Log, MemoryLog, SealedLog
from sofa_fl_flower.machine.site_records import DisclosureLedger
from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of

KEY_SIZE = 32
LOGS = ("ledger", "budget", "sums")
AUDIT_FILE = "audit.jsonl"
POLICY_FILE = "policy.toml"
PUBLIC_FILE = "sum.pub"


def audit_nothing(_entry: dict[str, Any]) -> None:
    """Write nothing."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site's secrets and records.

    Attributes:
        key: Known to nobody else; by it the site proves that it is the same as before.
        spent: What its answers have cost of its privacy budget.
        sums: Which sums of secure aggregation it took part in.
        audit: Called with every message and what came of it.
    """

    key: bytes
    ledger: DisclosureLedger = field(default_factory=DisclosureLedger)
    spent: Log = field(default_factory=MemoryLog)
    sums: Log = field(default_factory=MemoryLog)
    audit: Callable[[dict[str, Any]], None] = audit_nothing

    @property
    def identity(self) -> str:
        """What the server recognizes the site by; it tells nothing of the key or the samples."""
        return self.hash(b"", b"identity")

    def hash(self, content: bytes, purpose: bytes) -> str:
        """A keyed hash, which tells nobody else anything."""
        return hashlib.blake2b(content, key=self.key, digest_size=16, person=purpose).hexdigest()


def create_site(folder: Path, app: Path, name: str = "") -> Path:
    """Create a site's folder: a policy to edit, and the state that the policy names."""
    folder = folder.expanduser().resolve()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} must be a new or empty folder; choose another")
    state = folder / "state"
    text = policy_text(state, app.expanduser().resolve(), name)
    state.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    key = secrets.token_bytes(KEY_SIZE)
    write_bytes(state / "key", key.hex().encode() + b"\n", mode=0o600)
    for log in LOGS:
        SealedLog.create(state / log, key)
    append_bytes(state / AUDIT_FILE, b"", mode=0o600)
    write_bytes(folder / POLICY_FILE, text.encode(), mode=0o600)
    write_bytes(folder / PUBLIC_FILE, public_of(sum_key_of(key)).encode() + b"\n", mode=0o600)
    return folder


def open_site(state: Path) -> Site:
    """Open a site's state; raise if any of it is missing."""
    try:
        key = bytes.fromhex((state / "key").read_text(encoding="ascii"))
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_SIZE:
        raise RunError(
            f"{state} must contain a site's key, but does not; restore it from a backup, or create "
            "a new site with 'sofa-fl deploy site'"
        )
    ledger, spent, sums = (SealedLog(state / name, key) for name in LOGS)
    for log in (ledger, spent, sums):
        log.read()

    def audit(entry: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **entry}) + "\n"
        append_bytes(state / AUDIT_FILE, line.encode(), mode=0o600)

    if not (state / AUDIT_FILE).is_file():
        raise RunError(f"{state / AUDIT_FILE} is missing; restore it from a backup")
    return Site(key, DisclosureLedger(ledger), spent, sums, audit)
