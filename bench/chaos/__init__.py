"""Chaos: what becomes of requests while engines die, hang, refuse, reset and come back slowly.

fleet      the engines: simulated, or real
mischief   what is done to the engines, and when
client     one request, and what its answer was worth
leaving    clients that leave, in each phase of a request
measure    the run: load, mischief, and what is left afterwards
command    `python -m bench chaos`, `python -m bench leave`
"""
