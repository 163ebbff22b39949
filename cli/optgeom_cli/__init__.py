"""The `optgeom` command. Nothing imports it."""
