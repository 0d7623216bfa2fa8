"""The positions of clients and nodes, and their distances."""
