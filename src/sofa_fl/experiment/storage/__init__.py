"""The run folder: files that are whole or not there, and checkpoints."""
