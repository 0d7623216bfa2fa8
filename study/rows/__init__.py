"""What is kept of a run: rows, what figures need, and numbers computed from rows."""
