"""The networks, and a network as one flat vector and back."""
