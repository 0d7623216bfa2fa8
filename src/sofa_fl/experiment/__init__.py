"""Experiments: configuration, the only round loop, records, checkpoints, metrics."""
