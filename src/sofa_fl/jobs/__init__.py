"""Many runs: jobs in folders of their own, side by side, over combinations of values."""
