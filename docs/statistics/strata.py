"""Strata by regression, in statsmodels: Lin's interacted regression with HC2 errors.

Usage: python3 strata.py    (its values are in crates/experiment/tests/it/strata.rs)
"""
import numpy as np
import statsmodels.api as sm

i = np.arange(180)
treated = (i * 7 % 5 < 2).astype(float)
country, platform = i % 3, i * 11 % 4 // 2
y = 20 + 3 * country + 2 * platform + (i * i * 37 % 101) / 20 + treated * (0.5 + 0.4 * country)
cell = 2 * country + platform
cells = np.unique(cell)
dummies = np.array([cell == c for c in cells[1:]]).T.astype(float)
centred = dummies - dummies.mean(axis=0)
fit = sm.OLS(y, np.c_[np.ones(180), treated, centred, centred * treated[:, None]]).fit(cov_type="HC2")
value, error = fit.params[1], fit.bse[1]
# The regression takes the strata's shares for known; they are as random as the users.
effects = [y[(cell == c) & (treated == 1)].mean() - y[(cell == c) & (treated == 0)].mean() for c in cells]
shares = [(cell == c).mean() for c in cells]
between = sum(s * (e - value) ** 2 for s, e in zip(shares, effects)) / 180
print("cells", len(cells), "least", min(((cell == c) & (treated == t)).sum() for c in cells for t in (0, 1)))
print("difference", value, "error", error, "with random shares", (error**2 + between) ** 0.5)
