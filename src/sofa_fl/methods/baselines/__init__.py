"""Methods to compare with: one short file each."""
