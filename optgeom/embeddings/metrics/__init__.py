"""Metrics of trained embeddings: arrays in, numbers out. Nothing is read, normalised or judged here."""

from optgeom.embeddings.metrics.recovery import LatentRecovery, latent_recovery

__all__ = ["LatentRecovery", "latent_recovery"]
