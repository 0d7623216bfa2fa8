"""Where clients are, and how far apart."""
