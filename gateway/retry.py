"""The retry budget: retries may be at most a share of the traffic.

Without one, a failing fleet gets its load multiplied just when it can bear it least. After
Finagle's and linkerd's retry budgets: each request deposits `share`, each retry costs 1.
"""


class RetryBudget:
    """`share` is the retries allowed per request; `reserve` is how many may be saved up."""

    def __init__(self, share: float, reserve: float = 10.0) -> None:
        self._share = share
        self._reserve = reserve
        self._balance = reserve if share else 0.0

    def deposit(self) -> None:
        self._balance = min(self._reserve, self._balance + self._share)

    def withdraw(self) -> bool:
        """Take one retry out; False when there is none left."""
        if self._balance < 1.0:
            return False
        self._balance -= 1.0
        return True
