"""Secure aggregation: members send masked models, of which the server learns the mean alone.

Double masking as in Bonawitz et al. 2017, in two exchanges. No module here sends or stores
anything.
"""
