"""From class moments to directions, intervals and a verdict."""
