"""Several gateways in front of the same backends: who may use how much of them.

`config` is the schema, `leases` the slots of one gateway (pure), `shares` the arithmetic that Redis
does for all of them at once, `sharing` the word between the two. Quotas of tenants travel with it.
"""
