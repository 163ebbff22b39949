"""Sampling conditions.

Which positives let contrastive learning recover the latents, and what the optimum is when they do not.
"""
