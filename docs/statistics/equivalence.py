"""Equivalence by statsmodels: p-values of tests at both margins, on rows that are transformed.

Usage: python3 equivalence.py    (statsmodels 0.14 or newer; its values are in
crates/experiment/tests/it/equivalence.rs)
"""
import numpy as np
from statsmodels.stats.weightstats import ttest_ind

i, j = np.arange(40), np.arange(55)
control = {
    "orders": 1 + (i * i * 37) % 7, "revenue": 20 + (i * i * 37) % 101 / 10,
    "before": 18 + (i * i * 37) % 101 / 12 + (i * 29) % 11,
}
treatment = {
    "orders": 1 + (j * j * 53) % 7, "revenue": 20.3 + (j * j * 53) % 89 / 9,
    "before": 18.2 + (j * j * 53) % 89 / 11 + (j * 31) % 13,
}


def tost(base, own, treated, margin):
    """H0: the treated are (1 - margin) of the control or less, or (1 + margin) or more."""
    higher = ttest_ind(treated, own - margin * base, "larger", "unequal")[1]
    lower = ttest_ind(treated, own + margin * base, "smaller", "unequal")[1]
    return float(max(higher, lower))


def linear(arm):
    """A ratio's rows with its mean and the delta method's variance."""
    m, d = arm["revenue"], arm["orders"]
    ratio = m.mean() / d.mean()
    return ratio + (m - ratio * d) / d.mean()


x, y = control["revenue"], treatment["revenue"]
r, s = linear(control), linear(treatment)
both = {k: np.concatenate([control[k], treatment[k]]) for k in control}
theta = np.cov(both["revenue"], both["before"])[0, 1] / both["before"].var(ddof=1)
u = x - theta * (control["before"] - both["before"].mean())
v = y - theta * (treatment["before"] - both["before"].mean())
for margin in (0.02, 0.08, 0.3):
    print(margin, "mean", tost(x, x, y, margin), "ratio", tost(r, r, s, margin),
          "cuped", tost(x, u, v, margin))
