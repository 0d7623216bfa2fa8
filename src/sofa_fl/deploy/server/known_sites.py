"""Which site answers behind each machine: for one SuperNode key always the same, over all runs."""

from __future__ import annotations

import json
from pathlib import Path

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text


class KnownSites:
    """The identity of the site behind each machine, once it has been accepted.

    Flower keeps a machine's id as long as its key is registered, so another identity means that
    somebody else answers for it, or that the site has lost its key. `file` belongs to Flower's
    database, whose ids it has; without one, machines are known in this run only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._identities = _read(file)

    def refusal(self, machine: int, identity: str) -> str | None:
        """Why a machine cannot take part, if it is another site than before."""
        if self._identities.get(str(machine), identity) == identity:
            return None
        why = (
            "it must be the same site as before, but is not: somebody else may answer for it, or "
            "the site has a new key"
        )
        if self.file is None:
            return why
        return f"{why}; if its operator says so, delete {machine} from {self.file}"

    def add(self, machine: int, identity: str) -> None:
        """Remember a machine that has been accepted."""
        if str(machine) in self._identities:
            return
        self._identities = {**_read(self.file), **self._identities, str(machine): identity}
        if self.file is not None:
            write_text(self.file, json.dumps(self._identities, indent=1) + "\n")


def _read(file: Path | None) -> dict[str, str]:
    if file is None or not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {str(machine): str(identity) for machine, identity in found.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(
            f"{file} must list the site of every machine, but cannot be read: {error!r}; restore "
            "it from a backup, or delete it if every site is to be accepted anew"
        ) from None
