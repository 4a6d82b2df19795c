"""`forebay recalibrate`, the part that changes settings: a proposal, and its trial on real traffic.

Here: what the reckoning is told and what it answers (`proposal`), the judgement of the time after a
change against the time before (`trial`), and the following of the log meanwhile (`tail`). Not here:
the reckoning itself (bench/recalibrate, a program of its own), and how a change is made
(gateway/control).

A canary compares two groups of backends side by side; a class's bound is one for the whole gateway
and cannot be had by a group. So a change is tried on all traffic, for a limited time, against the
time just before it, and taken back when that is shown to be worse.
"""
