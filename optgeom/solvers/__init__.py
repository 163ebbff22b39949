"""Solvers: each returns a matrix and believes nothing; certificates decide."""
