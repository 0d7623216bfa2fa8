"""The publication: the paper's tables and figures, the benchmark of all methods, drift and faults.

Part of the repository, not of the package. Plans runs, runs them as jobs, and turns the files in
`results/` into Markdown and figures.
"""
