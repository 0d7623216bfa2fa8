"""Which commit made which rows: `python -m study.rows.origins results`.

A row has a digest of the code that made it; the history of the repository has the code.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from study.rows.row_files import Row, read_rows
from study.rows.seals import ORIGIN, UNSEALED

SOURCE = "src/sofa_fl"


def row_files(folder: Path) -> Iterator[tuple[str, list[Row]]]:
    """The files of a folder that have a row per run, by name."""
    for file in sorted(folder.glob("*.json")):
        rows = read_rows(file)
        if file.name != UNSEALED and isinstance(rows, list):
            yield file.name, rows


def codes_of(rows: Iterable[Row]) -> Counter[str]:
    """How many rows each code made, by its digest; `""` for rows that do not say."""
    return Counter(row.get(ORIGIN, {}).get("code", "") for row in rows)


def commits_of(codes: Iterable[str], repository: Path) -> dict[str, str]:
    """The newest commit with each code, as far as the history has one."""
    missing, found = set(codes) - {""}, {}
    for commit in _git(repository, "log", "--format=%H", "HEAD").split():
        if not missing:
            break
        code = _code_of(commit, repository)
        if code in missing:
            missing.remove(code)
            found[code] = commit
    return found


def _code_of(commit: str, repository: Path) -> str:
    """`code_digest` of a commit."""
    listed = _git(repository, "ls-tree", "-r", "--full-tree", commit, SOURCE).splitlines()
    files = [(PurePosixPath(line.split("\t")[1]), line.split()[2]) for line in listed]
    digest = hashlib.blake2b(digest_size=8)
    for path, blob in sorted(files):
        if path.suffix == ".py":
            digest.update(path.relative_to(SOURCE).as_posix().encode())
            digest.update(_content(blob, repository))
    return digest.hexdigest()


@cache
def _content(blob: str, repository: Path) -> bytes:
    return subprocess.check_output(["git", "cat-file", "blob", blob], cwd=repository)


def _git(repository: Path, *words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=repository, text=True)


def main(folder: Path) -> None:
    """Print, for every file, how many rows which commit made."""
    files = {name: codes_of(rows) for name, rows in row_files(folder)}
    commits = commits_of({code for codes in files.values() for code in codes}, folder)
    for name, codes in files.items():
        for code, count in codes.most_common():
            made = "not in the history" if code else "made before runs said so"
            if code in commits:
                made = _git(folder, "log", "-1", "--format=%h, %cs, %s", commits[code]).strip()
            print(f"{name:18} {count:4} rows  {code or '-':16}  {made}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
