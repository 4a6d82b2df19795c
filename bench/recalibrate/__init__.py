"""What `forebay recalibrate` reckons: an engine's costs and a class's bound, from the request log.

Here: the request log as intervals (`log`), what engines were busy with in each (`occupancy`), the
fit (`fit`), the bound that the simulator finds best (`boundary`), the fleet that it plays them on
(`fleet`), and the command. Not here: the least squares (bench/calibrate/fit.py), and how a proposal
is put in force (gateway/recalibration).
"""
