"""Certificates: repair, duality gap, dual residual. Nothing here knows a solver."""

from optgeom.certificates.certificate import Certificate, Certified, certify, decide

__all__ = ["Certificate", "Certified", "certify", "decide"]
