"""Latents seen through generators, and encoders that are trained to recover them: what the experiments share."""
