"""The server's side of a deployment: who takes part, what is asked of them, and the rounds."""
