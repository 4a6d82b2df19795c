"""Other gateways, each as one starts it in front of one server, and whether they are here.

Not here: what is measured of them (bench/overhead).
"""
