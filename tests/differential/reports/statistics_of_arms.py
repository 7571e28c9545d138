"""The statistics of docs/statistics, from lists of numbers per unit: plain formulas over NumPy and
SciPy.

An arm is a matrix with a row per unit and a column per number. `Figure` is what one arm contributes
to a comparison, `Estimate` the comparison. A figure that cannot be computed raises `Unavailable`
with the reason's code in docs/statistics/report-schema.md.

Invariants:
- Nothing here knows Uplake's code; formulas are those of the pages named at the functions.
- Sums are made in extended precision (numpy's longdouble), so that the model's own error is far
  below 1e-9. `Figure.condition` says by how much differences of large terms have lost digits.

Not here: rows (`model`), and what may differ (`compare`).
"""
import dataclasses
import functools
import math

import numpy as np
from scipy import interpolate, special

# Beyond this loss of digits a figure is noise in any double arithmetic.
CONDITION_MAX = 1e5
# Beyond this, what is left of terms is their last digit: a past that never varies.
NOISE = 1e15
POOR = "ill-conditioned"


class Unavailable(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Poor(Unavailable):
    """Is there a figure, or a variance of 0? Rounding decides."""

    def __init__(self):
        super().__init__(POOR)


def z_of(alpha):
    """The two-sided critical value of the normal distribution."""
    return float(-special.ndtri(alpha / 2))


def upper(z):
    """P(Z > z)."""
    return float(special.ndtr(-z))


def density(z):
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def t_two_sided(t, df):
    """P(|T| > |t|)."""
    if math.isinf(df):
        return 2 * upper(abs(t))
    if t * t < df:  # df / (df + t * t) would lose a small t
        return float(special.betaincc(0.5, df / 2, t * t / (df + t * t)))
    return float(special.betainc(df / 2, 0.5, df / (df + t * t)))


@functools.lru_cache(100_000)
def t_critical(alpha, df):
    return float(-special.stdtrit(df, alpha / 2))


def chi_square_p(q, df):
    return 0.0 if math.isinf(q) else float(special.gammaincc(df / 2, q / 2))


# Moments (moments.md)


class Moments:
    """Of an arm: means and sample covariances of the columns of a matrix."""

    def __init__(self, matrix):
        self.matrix = np.asarray(matrix, dtype=np.float64)
        self.n = len(self.matrix)
        self.columns = self.matrix.shape[1]
        self.finite = bool(np.isfinite(self.matrix).all())
        wide = self.matrix.astype(np.longdouble)
        with np.errstate(invalid="ignore"):
            self.sums = wide.sum(axis=0)
        self.means = self.sums / self.n if self.n else np.zeros(self.columns, np.longdouble)
        with np.errstate(invalid="ignore"):
            self.centred = wide - self.means
        self._known = {}

    def mean(self, i):
        return float(self.means[i])

    def covariance(self, i, j):
        if (i, j) not in self._known:
            if self.n < 2:
                return math.nan
            with np.errstate(invalid="ignore"):
                product = (self.centred[:, i] * self.centred[:, j]).sum() / (self.n - 1)
            self._known[i, j] = self._known[j, i] = float(product)
        return self._known[i, j]

    def variance(self, i):
        return self.covariance(i, i)


class Given:
    """Moments of an arm of which only users, mean and sample variance are known."""

    columns = 1

    def __init__(self, n, mean, variance):
        self.n, self.means, self.sums, self.of = n, [mean], [mean * n], variance
        self.matrix = np.array([[mean]] * min(n, 1)).reshape(min(n, 1), 1)
        self.finite = math.isfinite(mean) and math.isfinite(variance)

    def mean(self, i):
        return self.means[i]

    def covariance(self, i, j):
        return self.of if self.n > 1 else math.nan

    def variance(self, i):
        return self.covariance(i, i)


def pooled(a, b):
    return Moments(np.concatenate([a.matrix, b.matrix]))


# Figures of one arm


@dataclasses.dataclass
class Figure:
    n: int
    value: float
    variance: float
    raw_value: float
    raw_variance: float
    raw_covariance: float  # of the adjusted with the raw figure
    gradient_value: float  # of a treatment: where a lift's gradient is taken
    scale: float = 0.0  # of the terms that `value` is a difference of
    condition: float = 1.0

    def squared_error(self):
        return self.variance / self.n

    def check(self):
        if self.n < 2:
            raise Unavailable("too_few_users")
        if not (math.isfinite(self.value) and math.isfinite(self.variance)):
            raise Unavailable("not_finite")
        if self.condition > CONDITION_MAX:
            raise Poor
        if self.variance <= 0:
            raise Unavailable("zero_variance")


def plain(n, value, variance, scale=None, condition=1.0):
    return Figure(n, value, variance, value, variance, variance, value,
                  abs(value) if scale is None else scale, condition)


def figure(shape, moments):
    """means-and-proportions.md, ratios.md: the figure of an arm."""
    if moments.n == 0:
        raise Unavailable("empty_arm")
    if not moments.finite:
        raise Unavailable("not_finite")
    if shape == "share":
        share = moments.mean(0)
        return plain(moments.n, share, share * (1 - share))
    if shape == "mean":
        return plain(moments.n, moments.mean(0), moments.variance(0))
    if moments.means[1] == 0:
        raise Unavailable("zero_denominator")
    return ratio(moments, 0, 1)


def ratio(moments, m, d):
    base = moments.mean(d)
    if base == 0:
        return plain(moments.n, math.nan, math.nan)
    r = moments.mean(m) / base
    terms = [moments.variance(m), -2 * r * moments.covariance(m, d), r * r * moments.variance(d)]
    # The residuals' own variance: the same number without the difference of large terms.
    residual = moments.centred[:, m] - moments.means[m] / moments.means[d] * moments.centred[:, d]
    spread = float((residual * residual).sum() / (moments.n - 1)) if moments.n > 1 else math.nan
    condition = max(map(abs, terms)) / spread if spread else math.inf
    if max(map(abs, terms)) == 0:
        condition = 1.0
    # Where values are far from their differences the sums themselves lose digits.
    return plain(moments.n, r, spread / (base * base), abs(r), condition)


# CUPED (cuped.md)


def adjust_means(control, treatment):
    """One or more covariates, columns 1 and on; coefficients over both arms together."""
    both = pooled(control, treatment)
    columns = list(range(1, both.columns))
    theta, poor = coefficients(both, columns)
    return [_adjusted(arm, both, columns, theta, poor) for arm in (control, treatment)]


def coefficients(both, columns):
    """Least squares, and whether covariates nearly repeat others. Those that do, or never vary, add
    nothing, whichever of them is given the weight."""
    if not both.finite:
        return [math.nan] * len(columns), False
    deviations = [math.sqrt(max(both.variance(i), 0)) for i in columns]
    used = [k for k, deviation in enumerate(deviations) if deviation > 0]
    theta = [0.0] * len(deviations)
    if not used:
        return theta, False
    scaled = np.array([both.centred[:, columns[k]] / deviations[k] for k in used], np.float64).T
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    kept = sizes > 1e-8 * sizes[0]
    nearly = (sizes > 1e-13 * sizes[0]) & (sizes < 1e-2 * sizes[0])
    along = left[:, kept].T @ both.centred[:, 0].astype(np.float64)
    found = right[kept].T @ (along / sizes[kept])
    for k, coefficient in zip(used, found):
        theta[k] = float(coefficient) / deviations[k]
    return theta, bool(nearly.any())


def _adjusted(arm, both, columns, theta, poor):
    shift = sum(t * float(arm.means[i] - both.means[i]) for t, i in zip(theta, columns))
    raw = arm.variance(0)
    if arm.n > 1:
        residual = arm.centred[:, 0] - sum(t * arm.centred[:, i] for t, i in zip(theta, columns))
        variance = float((residual * residual).sum() / (arm.n - 1))
    else:
        variance = math.nan
    shared = sum(t * arm.covariance(0, i) for t, i in zip(theta, columns))
    explained = sum(t * t * arm.variance(i) for t, i in zip(theta, columns))
    largest = max(abs(raw), abs(explained), 2 * abs(shared))
    past = max(arm.variance(i) for i in columns)
    condition = lost_digits(largest, variance, both.variance(0), past)
    scale = abs(arm.mean(0)) + sum(abs(t * arm.mean(i)) for t, i in zip(theta, columns))
    return Figure(arm.n, arm.mean(0) - shift, variance, arm.mean(0), raw, raw - shared, arm.mean(0),
                  scale, math.inf if poor else condition)


def lost_digits(largest, variance, of_both, past):
    """What a variance made of terms up to `largest` has lost. One that is tiny beside that of both
    arms is noise: is it 0? So is one of 0 while the `past` varies, if rounding makes a coefficient
    of 0."""
    if variance > 1e-10 * of_both:
        return max(1.0, largest / variance)
    return math.inf if largest > 0 or past > 0 and of_both > 0 else 1.0


def adjust_ratios(control, treatment):
    """The linearised terms take the places of y and x. Columns: numerator, denominator, and both
    before exposure. The coefficient is of the sums of both arms' (co)variances."""
    terms, poor = [], False
    for arm in (control, treatment):
        now, before = ratio(arm, 0, 1), ratio(arm, 2, 3)
        if before.condition > NOISE:
            before.variance = 0.0
        shared = math.nan
        if arm.mean(3) != 0 and arm.n > 1:
            line = arm.centred[:, 0] - arm.means[0] / arm.means[1] * arm.centred[:, 1]
            past = arm.centred[:, 2] - arm.means[2] / arm.means[3] * arm.centred[:, 3]
            shared = float((line * past).sum() / (arm.n - 1) / (arm.means[1] * arm.means[3]))
            poor = poor or lost_in_covariance(arm, now, before) > CONDITION_MAX
        terms.append((now, before, shared))
    spread = terms[0][1].variance + terms[1][1].variance
    if not (math.isfinite(spread) and spread > 0):
        return [now for now, _, _ in terms]
    theta = (terms[0][2] + terms[1][2]) / spread
    if not math.isfinite(theta):
        return [now for now, _, _ in terms]
    users = terms[0][0].n + terms[1][0].n
    centre = sum(before.value * now.n for now, before, _ in terms) / users
    poor = poor or any(CONDITION_MAX < before.condition < NOISE for _, before, _ in terms)
    found = []
    for now, before, shared in terms:
        parts = [now.variance, theta * theta * before.variance, 2 * theta * shared]
        variance = parts[0] + parts[1] - parts[2]
        condition = lost_digits(max(map(abs, parts)), variance,
                                max(other.variance for other, _, _ in terms), before.variance)
        found.append(dataclasses.replace(
            now, value=now.value - theta * (before.value - centre), variance=variance,
            raw_covariance=now.variance - theta * shared,
            scale=now.scale + abs(theta * before.value),
            condition=math.inf if poor else max(condition, now.condition)))
    found[1].gradient_value = found[0].raw_value + found[1].value - found[0].value
    return found


def lost_in_covariance(arm, now, before):
    """The covariance of two ratios is a difference of these, beside the product of their deviations."""
    large = max(
        abs(rate * arm.covariance(a, b))
        for a, b, rate in (
            (0, 2, 1.0),
            (0, 3, before.value),
            (1, 2, now.value),
            (1, 3, now.value * before.value),
        )
    )
    base = abs(arm.mean(1) * arm.mean(3))
    deviations = math.sqrt(max(now.variance * before.variance, 0.0)) * base
    return large / deviations if deviations > 0 else 1.0


def variance_reduction(control, treatment):
    adjusted = control.squared_error() + treatment.squared_error()
    raw = control.raw_variance / control.n + treatment.raw_variance / treatment.n
    share = 1 - adjusted / raw if raw else math.nan
    return share if math.isfinite(share) else None


# Comparisons


@dataclasses.dataclass
class Estimate:
    value: float
    error: float
    df: float
    low: float
    high: float
    p: float
    noise: float = 0.0  # what rounding may move `value` by
    rough: float = 0.0  # share of p that Uplake may be off by, where it interpolates
    rough_ends: float = 0.0  # the same of the interval's width

    def times(self, factor):
        return dataclasses.replace(
            self, value=self.value * factor, error=self.error * factor, low=self.low * factor,
            high=self.high * factor, noise=self.noise * factor)

    def checked(self):
        if self.error == 0:
            raise Unavailable("zero_variance")
        numbers = [self.value, self.error, self.low, self.high, self.p]
        if not all(map(math.isfinite, numbers)):
            raise Unavailable("not_finite")
        return self


def student(value, error, df, alpha, noise=0.0):
    if error == 0 or not math.isfinite(error):
        return Estimate(value, error, df, value, value, 0.0).checked()
    half = t_critical(alpha, df) * error
    return Estimate(value, error, df, value - half, value + half, t_two_sided(value / error, df),
                    noise).checked()


def normal(value, error, alpha, noise=0.0):
    half = z_of(alpha) * error
    return Estimate(value, error, math.inf, value - half, value + half,
                    2 * upper(abs(value / error)), noise).checked()


def welch_df(control, treatment):
    a, b = control.squared_error(), treatment.squared_error()
    return (a + b) ** 2 / (a * a / (control.n - 1) + b * b / (treatment.n - 1))


def _checked_pair(control, treatment):
    control.check()
    treatment.check()
    return 1e-13 * (control.scale + treatment.scale)


def difference(control, treatment, alpha):
    """means-and-proportions.md."""
    noise = _checked_pair(control, treatment)
    error = math.sqrt(control.squared_error() + treatment.squared_error())
    return student(treatment.value - control.value, error, welch_df(control, treatment), alpha,
                   noise)


def lift(control, treatment, alpha):
    """lift.md: the delta method; with CUPED the adjusted difference over the raw control mean."""
    noise = _checked_pair(control, treatment)
    base = control.raw_value
    if base == 0:
        raise Unavailable("zero_control_mean")
    change = treatment.gradient_value / base - 1
    parts = [control.squared_error() + treatment.squared_error(),
             2 * change * control.raw_covariance / control.n,
             change * change * control.raw_variance / control.n]
    if max(map(abs, parts)) > CONDITION_MAX * sum(parts):
        raise Poor
    error = math.sqrt(sum(parts) / (base * base))
    return student((treatment.value - control.value) / abs(base), error,
                   welch_df(control, treatment), alpha, noise / abs(base))


@dataclasses.dataclass(frozen=True)
class Pivot:
    """lift.md: `difference - L base` and its squared error, for every lift L."""

    difference: float
    base: float
    errors: tuple  # own + 2 L shared + L^2 of_base
    of_control: tuple  # the same of one arm, for the degrees of freedom
    of_treatment: float
    sizes: tuple
    noise: float

    def squared_error(self, lift):
        parts = [self.errors[0], 2 * lift * self.errors[1], lift * lift * self.errors[2]]
        if max(map(abs, parts)) > CONDITION_MAX * sum(parts):
            raise Poor
        return sum(parts)

    def df(self, lift):
        own, shared, of_base = self.of_control
        a, b = own + 2 * lift * shared + lift * lift * of_base, self.of_treatment
        return (a + b) ** 2 / (a * a / (self.sizes[0] - 1) + b * b / (self.sizes[1] - 1))

    def estimate(self, critical, p, df=math.inf, rough=(0.0, 0.0)):
        """All lifts whose distance is at most `critical`, of their degrees of freedom, errors."""
        value = self.difference / self.base
        error = math.sqrt(self.squared_error(value)) / self.base
        # Far away, near, and where the ends are looked for: is the base told from 0 in all alike?
        strong = {self.base > critical(self.df(lift)) * math.sqrt(self.errors[2])
                  for lift in (0, value, value - 3 * error, value + 3 * error, 1e9, -1e9)}
        told = self.base / (critical(self.df(0)) * math.sqrt(self.errors[2])) if self.errors[2] else 2
        if len(strong) > 1 or abs(told - 1) < 1e-2:
            raise Poor
        if strong == {False}:
            raise Unavailable("zero_control_mean")

        def rejected(lift):
            distance = abs(self.difference - lift * self.base)
            return distance > critical(self.df(lift)) * math.sqrt(self.squared_error(lift))

        ends = []
        for step in (-error, error):
            inside, outside = value, value + step
            while not rejected(outside):
                inside, outside = outside, outside + step
                step *= 1.5
                if not math.isfinite(outside):
                    raise Poor
            for _ in range(200):
                middle = (inside + outside) / 2
                inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
            ends.append((inside + outside) / 2)
        return Estimate(value, error, df, *ends, p, self.noise / self.base, *rough).checked()


def pivot(control, treatment):
    noise = _checked_pair(control, treatment)
    of_control = tuple(v / control.n for v in (control.variance, control.raw_covariance, control.raw_variance))
    return _upright(treatment.value - control.value, control.raw_value,
                    (of_control[0] + treatment.squared_error(), *of_control[1:]), control, treatment, noise)


def over(pair, base, squared_error, shared):
    """triggered.md: the difference over a base with this squared error and covariance with the
    control's figure."""
    control, treatment = pair
    if not all(map(math.isfinite, (base, squared_error, shared))):
        raise Unavailable("not_finite")
    control = dataclasses.replace(control, raw_value=base, raw_variance=control.n * squared_error,
                                  raw_covariance=control.n * shared)
    return pivot(control, treatment)


def overall(moments, idle, share, of_share, exposed):
    """What the control's exposed users have from first exposure on (the last column) over the share
    activated: value, squared error, covariance with the control's figure. `idle`: rows of those of
    them who were never activated."""
    control = moments[0].matrix
    everybody = np.concatenate([control[:, -1], idle[:, -1]])
    activated = np.concatenate([np.ones(len(control)), np.zeros(len(idle))])
    count, mean = len(everybody), everybody.mean()
    with_share = ((activated - activated.mean()) * (everybody - mean)).mean() / exposed
    own = everybody.var(ddof=1) / count
    ratio = mean / share
    squared = own + ratio ** 2 * of_share - 2 * ratio * with_share
    figure = control[:, 0]
    if control.shape[1] > 2:
        columns = list(range(1, control.shape[1] - 1))
        theta, poor = coefficients(pooled(*[Moments(m.matrix[:, :-1]) for m in moments]), columns)
        if poor:
            raise Poor
        figure = figure - control[:, 1:-1] @ np.array(theta)
    together = np.cov(figure, control[:, -1], ddof=1)[0, 1]
    return ratio, squared / share ** 2, together / (count * share)


def independence(rows):
    """Pearson's chi-square of a table of counts, by SciPy; None if a side has one row or column."""
    from scipy import stats
    table = np.array([row for row in rows if sum(row)])
    if len(table) < 2:
        return None
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return None
    found = stats.chi2_contingency(table, correction=False)
    return {"chi_square": float(found.statistic), "df": int(found.dof), "p": float(found.pvalue)}


def _upright(difference, base, errors, control, treatment, noise):
    if base == 0:
        raise Unavailable("zero_control_mean")
    sign = math.copysign(1, base)
    of_control = (control.variance / control.n, sign * control.raw_covariance / control.n,
                  control.raw_variance / control.n)
    return Pivot(difference, abs(base), (errors[0], sign * errors[1], errors[2]), of_control,
                 treatment.squared_error(), (control.n, treatment.n), noise)


def pooled_difference(a, n, b, m, alpha):
    """Pearson's chi-square as a z-test; `a` of `n`, and `b` of `m`."""
    share = (a + b) / (n + m)
    error = math.sqrt(share * (1 - share) * (1 / n + 1 / m))
    if error == 0:
        raise Unavailable("zero_variance")
    return normal(b / m - a / n, error, alpha, 1e-15)


def fisher_p(a, n, b, m):
    """Fisher: the chance of tables no likelier than the one seen, in exact whole numbers."""
    both = a + b
    weight = lambda k: math.comb(n, k) * math.comb(m, both - k)  # noqa: E731
    seen = weight(a)
    rare = sum(w for k in range(max(0, both - m), min(both, n) + 1) if (w := weight(k)) <= seen)
    return rare / math.comb(n + m, both)


def newcombe(a, n, b, m, alpha):
    """Newcombe 1998, method 10: from two Wilson intervals."""
    z = z_of(alpha)

    def wilson(hits, users):
        p = hits / users
        half = z * math.sqrt(p * (1 - p) / users + z * z / (4 * users * users))
        centre = p + z * z / (2 * users)
        return (centre - half) / (1 + z * z / users), (centre + half) / (1 + z * z / users)

    p, q = a / n, b / m
    (a_low, a_high), (b_low, b_high) = wilson(a, n), wilson(b, m)
    return (q - p - math.hypot(q - b_low, a_high - p), q - p + math.hypot(b_high - q, p - a_low))


def non_inferiority(control, treatment, margin, direction, alpha):
    """non-inferiority.md: the distance from the margin, on the good side above 0."""
    noise = _checked_pair(control, treatment)
    kept, sign = (1 - margin, 1) if direction == "increase" else (1 + margin, -1)
    a, b = kept * kept * control.squared_error(), treatment.squared_error()
    df = (a + b) ** 2 / (a * a / (control.n - 1) + b * b / (treatment.n - 1))
    return student(sign * (treatment.value - kept * control.value), math.sqrt(a + b), df, alpha, noise)


# Quantiles (quantiles.md)


def rank(n, share):
    """One-based: ceil(n share), of a share as it is written."""
    exact = n * share
    whole = round(exact)
    found = whole if abs(exact - whole) <= 1e-15 * max(whole, 1) * 4 else math.ceil(exact)
    return min(max(found, 1), n)


def band_of(values, level):
    """The quantile and the values 1.96 standard errors of its rank below and above it."""
    width = z_of(0.05) * math.sqrt(level * (1 - level) / len(values))
    ranks = [rank(len(values), share) for share in (level - width, level, level + width)]
    inside = level - width > 0 and level + width < 1
    return [values[r - 1] for r in ranks], inside, ranks[2] - ranks[0]


def quantile_figure(values, level, clusters, growthbook=False):
    """Of sorted values. `clusters`: of rows, per user (values at or below the quantile, values)."""
    (low, middle, high), inside, apart = band_of(values, level)
    if not all(map(math.isfinite, (low, middle, high))):
        raise Unavailable("not_finite")
    if high <= low:
        raise Unavailable("zero_variance")
    if not inside:
        raise Unavailable("out_of_range")
    errors_apart, freedom = apart / math.sqrt(len(values) * level * (1 - level)), apart
    if growthbook:
        errors_apart, freedom = 2 * z_of(0.05), len(values) - 1
    elif clusters is not None:
        freedom = min(freedom, clusters.n - 1)
    squared = ((high - low) / errors_apart) ** 2
    condition = 1.0
    if clusters is not None:
        share = ratio(clusters, 0, 1)
        independent = level * (1 - level) / (len(values) - 1)
        squared *= share.squared_error() / independent
        condition = share.condition
    return plain(freedom + 1, middle, squared * (freedom + 1), condition=condition)


# Post-stratification (post-stratification.md)


def stratified(strata, overall, alpha):
    """Difference, lift by the delta method and pivot (or why there is none) of pairs of figures."""
    sizes = [control.n + treatment.n for control, treatment in strata]
    total = sum(sizes)

    def mean(of):
        return sum(n / total * of(c, t) for n, (c, t) in zip(sizes, strata))

    def variance(within, value):
        centre = mean(value)
        inside = sum((n / total) ** 2 * within(c, t) for n, (c, t) in zip(sizes, strata))
        return inside + mean(lambda c, t: (value(c, t) - centre) ** 2) / total

    def gap(c, t):
        return t.value - c.value

    def spread(c, t):
        return c.squared_error() + t.squared_error()

    df = welch_df(*overall)
    noise = 1e-13 * max(c.scale + t.scale for c, t in strata)
    absolute = student(mean(gap), math.sqrt(variance(spread, gap)), df, alpha, noise)
    base = mean(lambda c, t: c.raw_value)
    if base == 0:
        return absolute, Unavailable("zero_control_mean"), Unavailable("zero_control_mean")
    change = mean(lambda c, t: t.raw_value) / base - 1

    def spread_of_lift(c, t):
        return (spread(c, t) + 2 * change * c.raw_covariance / c.n
                + change * change * c.raw_variance / c.n)

    error = math.sqrt(variance(spread_of_lift, lambda c, t: gap(c, t) - change * c.raw_value))
    if abs(base) < 1e-6 * mean(lambda c, t: abs(c.raw_value)):
        return absolute, Poor(), Poor()

    def at(change):
        """The squared error of `difference - change * base`, which is a square in `change`."""
        def within(c, t):
            return spread(c, t) + 2 * change * c.raw_covariance / c.n + change ** 2 * c.raw_variance / c.n
        return variance(within, lambda c, t: gap(c, t) - change * c.raw_value)

    own, up, down = at(0), at(1), at(-1)
    errors = (own, (up - down) / 4, (up + down) / 2 - own)
    of_lift = _upright(mean(gap), base, errors, *overall, noise)
    try:
        return absolute, student(mean(gap) / abs(base), error / abs(base), df, alpha,
                                 noise / abs(base)), of_lift
    except Unavailable as reason:
        return absolute, reason, of_lift


# Looking early (looking-early.md)


def anytime(estimate, users, planned, alpha, level):
    """The confidence sequence tuned for alpha, and its p-value: the level at which it would just touch 0."""
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / planned
    n = max(users, 1)
    grown = n * rho2 + 1
    half = estimate.error * math.sqrt(n) * math.sqrt(
        2 * grown / (n * n * rho2) * math.log(math.sqrt(grown) / level))
    z = estimate.value / estimate.error
    p = min(1.0, math.sqrt(grown) * math.exp(-rho2 * z * z * n / (2 * grown)))
    return dataclasses.replace(estimate, df=math.inf, low=estimate.value - half,
                               high=estimate.value + half, p=p).checked()


# Of e: a power beyond is no double.
LARGEST_EXPONENT = math.log(np.finfo(float).max)


def anytime_above(estimate, users, planned, alpha):
    """One-sided p-value of the sequence whose two sides are tuned for alpha."""
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / planned
    n = max(users, 1)
    grown = n * rho2 + 1
    z = max(estimate.value / estimate.error, 0)
    evidence = rho2 * z * z * n / (2 * grown)
    if evidence > LARGEST_EXPONENT:
        return 0.0
    return min(1.0, math.sqrt(grown) / (2 * math.expm1(evidence))) if evidence else 1.0


def at_look(estimate, fractions, level, alpha):
    """p is the least level at which the test rejects at its last look. Uplake's bound is exact at alpha."""
    half = critical_values(fractions, level)[-1] * estimate.error
    p = p_at_look(fractions, abs(estimate.value / estimate.error))
    return dataclasses.replace(estimate, df=math.inf, low=estimate.value - half,
                               high=estimate.value + half, p=p,
                               rough=3e-4 if p < 0.3 else 3e-3,
                               rough_ends=0.0 if level == alpha else 1e-4).checked()


def p_at_look(fractions, z):
    last, before = fractions[-1], fractions[-2] if len(fractions) > 1 else 0
    alone = 2 * upper(z) / (last * last - before * before)
    if len(fractions) == 1:
        return min(1.0, alone)
    spline, low, high = p_curve(fractions)
    return min(1.0, alone * math.exp(float(spline(min(max(z, low), high)))))


@functools.lru_cache(200)
def p_curve(fractions):
    """Logarithms of level over what the last look alone would spend at its critical value."""
    last, before = fractions[-1], fractions[-2]
    levels = [0.98, 0.95, *np.linspace(0.9, 0.1, 17), *np.geomspace(0.07, 1e-11, 24)]
    points = sorted((critical_values(fractions, level)[-1], level) for level in levels)
    found = [math.log(level * (last * last - before * before) / (2 * upper(z))) for z, level in points]
    places = [z for z, _ in points]
    return interpolate.CubicSpline(places, found), places[0], places[-1]


@functools.lru_cache(1)
def nodes_of_gauss():
    return np.polynomial.legendre.leggauss(400)


@functools.lru_cache(10_000)
def critical_values(fractions, alpha):
    """Lan and DeMets: at fraction t, alpha t^2 has been spent. Exact to about 1e-13: the density of
    the score of trials that go on, by Gauss and Legendre's rule."""
    nodes, weights = nodes_of_gauss()
    found, points, mass, before = [], np.zeros(1), np.ones(1), 0.0
    for number, t in enumerate(fractions):
        deviation = math.sqrt(t - before)
        target = alpha * (t * t - before * before) / 2
        low, high = 0.0, 40.0
        bound = None
        for _ in range(200):
            bound = (low + high) / 2
            stopped = float((mass * special.ndtr((points - bound) / deviation)).sum())
            low, high = (bound, high) if stopped > target else (low, bound)
        found.append(bound / math.sqrt(t))
        if number + 1 < len(fractions):
            x = nodes * bound
            kernel = np.exp(-(((x[:, None] - points) / deviation) ** 2) / 2)
            density_at = (kernel * mass).sum(axis=1) / deviation / math.sqrt(2 * math.pi)
            points, mass = x, density_at * weights * bound
        before = t
    return tuple(found)


def todays_look(users, planned, looks):
    """The fractions of the looks up to today's, and whether one was planned at today's users."""
    now = min(1.0, max(users, 1) / planned)
    planned_looks = [k / looks for k in range(1, looks + 1)]
    near = any(abs(look - now) <= 0.02 for look in planned_looks)
    earlier = [look for look in planned_looks if look < now * (1 - 1e-9)]
    return (*earlier, now), near


# Belief (belief.md)


def posterior(estimate, prior, alpha):
    precision = estimate.error ** -2
    mean = estimate.value
    noise = estimate.noise
    if prior is not None:
        of_prior = prior["deviation"] ** -2
        total = precision + of_prior
        mean = (estimate.value * precision + prior.get("mean", 0) * of_prior) / total
        noise *= precision / total
        precision = total
    return normal(mean, precision ** -0.5, alpha, noise)


def belief(after, direction):
    z = after.value / after.error
    win, lose = upper(-z), upper(z)
    risk_up = after.error * density(z) - after.value * lose
    risk_down = after.error * density(z) + after.value * win
    if direction == "decrease":
        win, risk_up, risk_down = lose, risk_down, risk_up
    return {"chance_to_win": win, "risk_of_arm": risk_up, "risk_of_control": risk_down}


# Families and health (many-comparisons.md, sample-ratio.md, breakdown.md)


def corrected(ps, correction):
    m = len(ps)
    order = sorted(range(m), key=lambda i: ps[i])
    found = list(ps)
    if correction == "holm":
        top = 0.0
        for place, i in enumerate(order):
            top = max(top, min(1.0, ps[i] * (m - place)))
            found[i] = top
    elif correction == "benjamini-hochberg":
        least = 1.0
        for place, i in reversed(list(enumerate(order))):
            least = min(least, ps[i] * m / (place + 1))
            found[i] = least
    return found


def sample_ratio(counts, shares):
    """Chi-square, degrees of freedom and expected counts."""
    total = sum(counts)
    expected = [share / sum(shares) * total for share in shares]
    q = 0.0
    for count, e in zip(counts, expected):
        if e > 0:
            q += (count - e) ** 2 / e
        elif count:
            q = math.inf
    return q, sum(share > 0 for share in shares) - 1, expected


def sequential_ratio_p(counts, shares):
    """1 / BF with a Dirichlet prior worth 100 users at the planned shares."""
    total = sum(shares)
    if any(count and not share for count, share in zip(counts, shares)):
        return 0.0
    used = [(n, share / total) for n, share in zip(counts, shares) if share]
    evidence = sum(special.gammaln(100 * s + n) - special.gammaln(100 * s) - n * math.log(s)
                   for n, s in used)
    evidence += special.gammaln(100) - special.gammaln(100 + sum(n for n, _ in used))
    return min(1.0, math.exp(-float(evidence)))


def spread_of_lifts(pivots):
    """The least sum of squared distances from one lift, and its degrees of freedom."""
    def total(lift):
        return sum((p.difference - lift * p.base) ** 2 / p.squared_error(lift) for p in pivots)

    lift, before = 0.0, math.inf
    for _ in range(2000):
        if abs(lift - before) <= 1e-13 * max(abs(lift), 1):
            break
        before = lift
        weights = [p.base / p.squared_error(lift) for p in pivots]
        lift = (sum(w * p.difference for w, p in zip(weights, pivots))
                / sum(w * p.base for w, p in zip(weights, pivots)))
    else:
        raise Poor
    return total(lift), len(pivots) - 1


def heterogeneity(estimates):
    """Cochran's Q of (difference, error) per value."""
    weights = [error ** -2 for _, error in estimates]
    centre = sum(w * d for w, (d, _) in zip(weights, estimates)) / sum(weights)
    q = sum(w * (d - centre) ** 2 for w, (d, _) in zip(weights, estimates))
    return q, len(estimates) - 1
