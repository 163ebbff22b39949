"""Collapse: exact thresholds, where rank is first lost, loss values, sensitivities, and how to stay clear of it."""
