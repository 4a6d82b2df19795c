"""`forebay tune`: the flags of vLLM that are best for one class, found by measuring.

space      the flags, their values, which go together
traffic    the requests that every candidate gets
objective  what is measured, what is better, what rules a candidate out
ladder     max_num_seqs, step by step
book       what was measured so far, kept in an Optuna study: a stopped search goes on
search     the whole search: defaults, ladder, optimiser, comparison, within a budget
compare    whether the chosen flags are better than the defaults, or only look so
simulated  candidates on the engine model, in virtual time
managed    candidates as real engines, restarted with their flags behind a gateway
evidence   why each flag has its value, and the plan with these reasons
document   the result as JSON; pictures are bench.pictures.tune
command    the command line

Needs Optuna, which only the extra `tune` installs.
"""
