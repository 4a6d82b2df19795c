"""What a second relay process brings: `python -m bench workers`."""
