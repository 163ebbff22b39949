"""Pictures of results: they read what was computed and return matplotlib figures and axes.

No global state, no windows.
"""

from optgeom.plotting.figures import require_matplotlib, save_figure
from optgeom.plotting.geometry import plot_angles, plot_geometry, plot_gram, plot_spectrum
from optgeom.plotting.phase_diagram import plot_phase_diagram
from optgeom.plotting.prototypes import plot_prototypes
from optgeom.plotting.saddles import plot_saddles

__all__ = [
    "plot_angles",
    "plot_geometry",
    "plot_gram",
    "plot_phase_diagram",
    "plot_prototypes",
    "plot_saddles",
    "plot_spectrum",
    "require_matplotlib",
    "save_figure",
]
