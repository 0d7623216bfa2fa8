"""The command line: typer and rich. May import everything below; nothing below imports it.

Commands import what they need inside their functions: importing torch takes seconds, which
`--help` must not.
"""
