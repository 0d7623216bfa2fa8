"""What only makes clustering faster: the same edits with and without."""
