"""The paper's experiment, its tables and figures, the benchmark of all methods, drift and faults.

Plans runs, runs them, and makes Markdown and pictures of what lies in the results folder. May
import the experiment and the report; only files named after
figures import matplotlib.
"""
