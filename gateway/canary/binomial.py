"""Exact binomial probabilities: what a count of so many out of so many says. Pure."""

from math import exp, inf, lgamma, log, log1p


def tail(n: int, p: float, k: int) -> float:
    """The chance of k or more successes in n trials that succeed with chance p each."""
    if k <= 0:
        return 1.0
    if k > n or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return 1.0
    if k < n * p:
        return 1.0 - _from(n, 1.0 - p, n - k + 1)
    return _from(n, p, k)


def upper(n: int, k: int, chance: float) -> float:
    """The largest rate of success with which k or fewer of n are not rarer than `chance`
    (Clopper and Pearson's bound); 1 when nothing was seen."""
    if k >= n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if 1.0 - tail(n, middle, k + 1) > chance:
            low = middle
        else:
            high = middle
    return high


def rank_above(n: int, quantile: float, chance: float) -> int | None:
    """Which of n values in order (1 is the least) lies above the quantile that they were drawn
    from, but for `chance`. None when n is too small for even the greatest one."""
    low, high = 1, n
    if n < 1 or tail(n, quantile, n) > chance:
        return None
    while low < high:
        middle = (low + high) // 2
        if tail(n, quantile, middle) <= chance:
            high = middle
        else:
            low = middle + 1
    return low


def _from(n: int, p: float, k: int) -> float:
    """The sum of the chances of k to n successes, where these become smaller and smaller."""
    if k > n:
        return 0.0
    term = _log_term(n, p, k)
    total, odds = 0.0, p / (1.0 - p)
    value = exp(term) if term > -inf else 0.0
    for i in range(k, n + 1):
        total += value
        value *= odds * (n - i) / (i + 1)
        if value < total * 1e-15:
            break
    return min(total, 1.0)


def _log_term(n: int, p: float, k: int) -> float:
    choose = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
    return choose + k * log(p) + (n - k) * log1p(-p)
