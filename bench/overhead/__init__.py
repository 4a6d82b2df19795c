"""What a gateway costs, beside other gateways and none: the engine, the client, the accounting.

Here: an engine that answers at once (`engine`, `answers`), a closed-loop client (`generator`), the
kernel's accounts of a process tree (`accounts`), what is measured (`loads`), and the command.
Not here: how each gateway is started (bench/peers).
"""
