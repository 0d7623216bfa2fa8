"""What only makes clustering faster: the same edits with and without."""

from sofa_fl.topology.clustering.fast.candidates import FastCandidates

__all__ = ["FastCandidates"]
