"""Several gateways in front of the same backends: who may use how much of them.

`config` is the schema, `leases` the shares of one gateway (pure), `share.lua` the arithmetic that
Redis does for all of them at once, `renew` the loop between the two.
"""
