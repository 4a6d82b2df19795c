"""The hourly memory check: what an hour of an engine's metrics says of its memory, and what to set.

Here: an hour as numbers (`usage`), what follows from them (`signs`), the check that does it again
and again (`check`), its setting (`config`) and its metrics (`collector`). Not here: how metrics are
read (backends/scrape.py). Nothing is changed by it: it is advice.
"""
