"""`python -m bench compare`: the same requests through every gateway, in front of the same engines.

Here: what is sent (`scenarios`), the engines behind (`engines`), the turns (`run`), what comes of
it (`report`), and the set-up of the peers (`install`). Not here: how each gateway is started
(bench/peers) and how a run is measured (bench/load).
"""
