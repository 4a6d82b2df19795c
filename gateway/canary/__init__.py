"""Moving a model's traffic to a new group of backends by steps, and back when it is worse.

`config` is what an operator says, `sketch` and `verdict` compare two groups honestly, `progress`
is the state machine (pure, virtual time), `trial` gathers what this gateway sees, `shared` keeps
it in Redis so that all gateways and a restart agree.
"""
