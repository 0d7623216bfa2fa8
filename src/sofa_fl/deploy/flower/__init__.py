"""Flower between server and machines; nothing else imports it."""
