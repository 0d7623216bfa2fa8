"""Which site answers behind each machine: for one SuperNode key always the same, over all runs."""

from __future__ import annotations

from pathlib import Path

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text


class KnownSites:
    """The identity of the site behind each machine, once it has been accepted.

    Flower keeps a machine's id as long as its key is registered, so another identity means that
    somebody else answers for it, or that the site has lost its key. `file` belongs to Flower's
    database, whose ids it has; without one, machines are known in this run only. It has a line for
    each machine, and is read each time, since the server's operator may delete one.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._known: dict[str, str] = {}
        self._read()  # now rather than in the middle of a run, if there is something wrong with it

    def refusal(self, machine: int, identity: str) -> str | None:
        """Why a machine cannot take part, if it is another site than before."""
        if self._read().get(str(machine), identity) == identity:
            return None
        why = (
            "it must be the same site as before, but is not: somebody else may answer for it, or "
            "the site has a new key"
        )
        if self.file is None:
            return why
        return f"{why}; if its operator says so, delete the line of {machine} from {self.file}"

    def add(self, machine: int, identity: str) -> None:
        """Remember a machine that has been accepted."""
        known = self._read()
        if known.get(str(machine)) == identity:
            return
        self._known = {**known, str(machine): identity}
        if self.file is not None:
            lines = [f"{machine} {identity}\n" for machine, identity in self._known.items()]
            write_text(self.file, "".join(lines))

    def _read(self) -> dict[str, str]:
        if self.file is None or not self.file.exists():
            return self._known if self.file is None else {}
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
            pairs = [line.split() for line in lines if line.strip()]
            return dict(pairs)
        except (OSError, ValueError) as error:
            raise RunError(
                f"{self.file} must have a line with two words for every machine, but cannot be "
                f"read: {error}; restore it, or delete it to accept every site anew"
            ) from None
