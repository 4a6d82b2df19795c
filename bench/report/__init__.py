"""`python -m bench report` and `headline`: all measurements in one run, and what they say.

Here: which commands with which arguments (`suite`), running them (`run`), the figure of each claim
(`claims`), the source's claims one by one (`headline`), and the text of it. Not here: measuring.
"""
