"""The configuration, the round loop, and what it records."""
