"""Pictures of measurements as PNG files: one look (`style`), one file for each kind of result.

Needs matplotlib, which only the extra `bench` installs. Not here: what the numbers mean.
"""

from bench.pictures.style import MissingLibrary

__all__ = ["MissingLibrary"]
