"""Flower's SuperLink with safe defaults, which checks what SuperNodes send."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sofa_fl_flower.flower.supernode import FLOWER_ENVIRONMENT, option

MAX_ANSWER = "1000"  # megabytes
DEFAULTS = {
    "--host": "127.0.0.1",
    "--port": "8001",
    "--database": ".flwr/state.db",
    "--ssl-ca-certfile": "keys/ca.crt",
    "--ssl-certfile": "keys/server.pem",
    "--ssl-keyfile": "keys/server.key",
}


def main(arguments: Sequence[str]) -> None:
    """Run a SuperLink; `arguments` are those of `flower-superlink`, and `--max-answer`."""
    os.umask(0o077)  # what it writes is for its own user alone
    os.environ.update(FLOWER_ENVIRONMENT)  # Flower reads them when it is imported
    rest, given = option(arguments, "--max-answer")
    sys.argv = ["flower-superlink", *with_defaults(rest)]
    from flwr.superlink.cli.flower_superlink import flower_superlink

    from sofa_fl_flower.flower.fleet_guard import guard_fleet

    guard_fleet(int(float(given or MAX_ANSWER) * 1_000_000))
    flower_superlink()


def with_defaults(arguments: Sequence[str]) -> list[str]:
    """Add what the docs use: this computer only, TLS, registered SuperNodes, a database."""
    missing = [name for name in DEFAULTS if option(arguments, name)[1] is None]
    if "--insecure" in arguments:
        return list(arguments)
    return [
        *arguments,
        *(word for name in missing for word in (name, DEFAULTS[name])),
        *([] if "--enable-supernode-auth" in arguments else ["--enable-supernode-auth"]),
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
