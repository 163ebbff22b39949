"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every run and machine: a red test must be red again when it is looked into.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
