"""What changes by itself while the gateway runs, within bounds, and is told with its reason.

ear          hears what the rules go by: prompt lengths, and how long first tokens took
adaptation   class boundaries and burst settings in force over the configured ones (the rule for
             them is the scheduler package's, so that the simulator runs the same one)
memory       what share of its GPU's memory an engine should take: the source's rule
advisor      that rule applied to the backends that there are
rollout      one engine at a time tries a new share, is compared with before, and goes back
carrying     does what the rollout says, in maintenance windows

Off unless an operator turns it on, and an operator's own value is never touched.
"""
