"""What the first user request after an engine's start costs, with the warm gate and without."""
