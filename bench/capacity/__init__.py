"""`forebay capacity`: how many engines a rate of requests needs, for an objective that is held.

Here: the objective (`objective`), the workload that is planned for (`demand`), one simulation
(`play`), the search for the fewest engines (`search`), the source's rule beside it and why the two
differ (`reasons`), and the command. Not here: the simulator (bench/simulation.py) and the picture
(bench/pictures/capacity.py).
"""
