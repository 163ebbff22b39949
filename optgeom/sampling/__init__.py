"""Sampling conditions: which positives let contrastive learning recover the latents, and what is optimal otherwise."""
