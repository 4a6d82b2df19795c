"""`python -m bench load`: load on an OpenAI-compatible server, measured from the intended start.

Follow a run through `command` (flags), `plan` (what is sent when), `prompts` (text of exact
length), `run` (open and closed loop), `exchange` (one request), `sample` (what is kept of it),
`summary` and `output`. Not here: workloads as such (bench/workload.py) and engines.
"""
