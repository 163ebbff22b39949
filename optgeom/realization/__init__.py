"""Weighted InfoNCE as distance geometry: weights, the entropic bound, and whether an embedding attains it."""
