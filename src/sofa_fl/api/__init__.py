"""The Python API: functions that run experiments, show progress, and return rich results."""
