"""Operators' settings from Redis: hashes that a person can type, in force within a second.

    notice ──► reader ──► overlay ──► control ──► accepted(Config)
    (what changed) (hold what) (valid as a whole?)   │  └► refusals (forebay:rejected)
                                                     └► versions (forebay:history), snapshot (file)

`keys` is the table of keys. Nothing here is on a request's path.
"""

from gateway.control.control import Control
from gateway.control.keys import REJECTED
from gateway.control.overlay import Rejection, overlay

__all__ = ["REJECTED", "Control", "Rejection", "overlay"]
