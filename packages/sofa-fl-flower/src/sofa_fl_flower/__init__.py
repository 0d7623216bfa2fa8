"""A federation of real machines.

`server/` runs the rounds and asks, `machine/` owns the samples and answers, `transport/` is what
they send each other. None of these knows Flower: `flower/` alone imports it and carries messages.
"""
