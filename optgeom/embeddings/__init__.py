"""Trained embeddings: readers, streaming class moments, statistics, metrics, validation against the optimum, report."""
