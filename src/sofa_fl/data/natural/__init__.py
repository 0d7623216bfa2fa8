"""Federations that nobody dealt out: the clients are languages, weather stations, hospitals."""
