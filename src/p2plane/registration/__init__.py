"""Two scans in, one pose out: clean, thin, search, refine, check, and say how far the answer can be trusted."""

from p2plane.registration.pipeline import register
from p2plane.registration.result import Candidate, Matches, Registration

__all__ = ["Candidate", "Matches", "Registration", "register"]
