"""Readers of trained embeddings: one file a format; `open.open_embeddings` chooses among them."""
