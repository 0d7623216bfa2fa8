"""How well the clients are served."""
