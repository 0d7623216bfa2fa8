"""Federated methods: one short file each, all on the same engine interface."""
