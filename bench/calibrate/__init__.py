"""`python -m bench calibrate`: the engine model's costs, fitted to a server that runs.

Here: what is asked of the server (`measure`), the fit (`fit`), how far the fitted model is off for
requests that it has not seen (`heldout`), and the command. Not here: the model (bench/engine.py).
"""
