"""Which balanced loss does what: the table of docs/which-balanced-loss.md.

    python docs/balanced_losses.py      four real long tails at two temperatures, about a minute

Every optimum is certified. Firmness is the slack that fixes every angle to 2 degrees, in percent of the way from the
optimal to the collapsed loss; for more than 30 classes over the closest, the rarest and the widest pairs.
"""

from __future__ import annotations

from typing import Any

import optgeom as og

PROFILES = ("cifar10-lt:100", "cifar100-lt:100", "imagenet100-lt", "places-lt")
TEMPERATURES = (0.1, 0.5)
LOSSES: dict[str, dict[str, Any]] = {
    "SupCon": {},
    "own class out (SINCERE)": {"own_class_in_denominator": False},
    "balanced anchors": {"anchor_weights": "balanced"},
    "class-averaged negatives (BCL as published)": {"negative_weights": "class-average"},
    "both": {"anchor_weights": "balanced", "negative_weights": "class-average"},
}


def main() -> None:
    """Print one line per profile, temperature and loss."""
    for profile in PROFILES:
        classes = og.ClassDistribution.from_profile(profile)
        for temperature in TEMPERATURES:
            for name, options in LOSSES.items():
                geometry = og.solve(classes, og.SupCon(temperature=temperature, **options))
                largest = geometry.farthest_pairs(1)[0].angle_deg
                print(
                    f"{profile:16} T = {temperature}  {name:44} {geometry.min_angle_deg:6.1f} to {largest:6.1f} "
                    f"degrees, rank {geometry.rank}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
