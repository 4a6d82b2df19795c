"""Who asks, and how much they may: tenants, their API keys, their limits.

`config` is the schema, `keys` makes and recognises API keys, `window` and `account` are the pure
arithmetic of quotas, `quota` brings them together with Redis, `limits` is what a request meets.
"""
