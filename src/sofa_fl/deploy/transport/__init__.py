"""What travels between server and machines, as bytes."""
