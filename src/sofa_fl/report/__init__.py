"""Reports on a run folder: what happened, in words and pictures.

Reads what lies in the folder and nothing else, so it also works while a run is going on. May
import the topology and `experiment.folder`; imports no torch.
"""
