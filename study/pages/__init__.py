"""The results as Markdown; made from the files in `results/` alone."""
