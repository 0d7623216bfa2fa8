"""What Python users call: the experiment's functions, with progress, a report and rich results."""
