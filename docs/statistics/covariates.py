"""Regression coefficients in exact rational arithmetic, to check CUPED with two covariates.

Usage: python3 covariates.py users.csv    (columns variant, revenue, pre_revenue, pre_sessions)
"""
import csv
import sys
from fractions import Fraction

rows = [r for r in csv.DictReader(open(sys.argv[1])) if r["variant"] in "AB"]
names = ["revenue", "pre_revenue", "pre_sessions"]
columns = [[Fraction(r[name]) for r in rows] for name in names]
means = [sum(column) / len(column) for column in columns]


def cross(i, j):
    return sum((a - means[i]) * (b - means[j]) for a, b in zip(columns[i], columns[j]))


determinant = cross(1, 1) * cross(2, 2) - cross(1, 2) ** 2
first = (cross(0, 1) * cross(2, 2) - cross(0, 2) * cross(1, 2)) / determinant
second = (cross(0, 2) * cross(1, 1) - cross(0, 1) * cross(1, 2)) / determinant
print(float(first), float(second))
