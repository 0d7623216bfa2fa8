"""A machine's side of a deployment: its samples, its answers, and what it may disclose."""
