"""Differential privacy of a simulated federation: noise on all answers, and what they cost."""
