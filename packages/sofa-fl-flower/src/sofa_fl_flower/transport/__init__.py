"""What server and machines send each other: messages, and the setup of a run."""
