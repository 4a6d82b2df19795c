"""What a request costs after an engine was left alone, with keep-warm requests and without."""
