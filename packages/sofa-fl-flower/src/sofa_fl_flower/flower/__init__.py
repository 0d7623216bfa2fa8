"""Flower as the carrier between server and machines: its apps, its SuperNode, keys, a template."""
