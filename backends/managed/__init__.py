"""Engines that are ours: `vllm serve` processes of a plan, started, watched, restarted, ended.

leash        what keeps an engine from outliving who started it
process      one process group, from its start to the end of its last member
supervisor   one engine: started again when it ends, with a backoff
node         all engines of a plan, and restarting them one at a time

Nothing here decides whether an engine is fit for traffic: that is `lifecycle`'s, as for an engine
that somebody else started.
"""
