"""A machine's side of a deployment: its samples, and its answers."""
