"""Using a model outside its run."""
