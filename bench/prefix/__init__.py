"""`python -m bench prefix`: the worth of sending a conversation where its beginning is cached.

Here: the conversations (`conversations`), the policies and the turns (`run`), the command. Not
here: how a prefix is recognised (scheduler, tokenizer_pool) and how engines cache (bench/kv.py).
"""
