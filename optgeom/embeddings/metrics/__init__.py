"""Metrics of trained embeddings: arrays in, numbers out. Nothing is read, normalised or judged here."""
