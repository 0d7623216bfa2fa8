"""The command line: typer and rich. May import everything below; nothing below imports it.

Commands import what they run inside themselves: torch takes seconds, `--help` must not.
"""
