"""Can this combination run at all? Asked before anything expensive is started."""

from tuner.preflight.check import Report, check_engine, check_study
from tuner.preflight.models import target_digest

__all__ = ["Report", "check_engine", "check_study", "target_digest"]
