"""Class moments of an embedding: sources of rows, two passes over them, samples of rows."""
