"""How local training is executed: one narrow interface, several engines."""
