"""Which arm an assignment system means a user to see: docs/statistics/assignment.md.

The hashes are those the systems publish; the vectors of `test_reports.py` are from their own tests.
"""
import hashlib


def fnv1a(text):
    """Over UTF-16 code units, as JavaScript has them."""
    found = 0x811C9DC5
    raw = text.encode("utf-16-le")
    for at in range(0, len(raw), 2):
        found = (found ^ int.from_bytes(raw[at:at + 2], "little")) * 0x01000193 % 2**32
    return found


def murmur3(data, seed):
    """MurmurHash3, 32 bits."""
    def mixed(block):
        block = block * 0xCC9E2D51 % 2**32
        block = (block << 15 | block >> 17) % 2**32
        return block * 0x1B873593 % 2**32

    found, whole = seed, len(data) // 4 * 4
    for at in range(0, whole, 4):
        found ^= mixed(int.from_bytes(data[at:at + 4], "little"))
        found = (found << 13 | found >> 19) % 2**32
        found = (found * 5 + 0xE6546B64) % 2**32
    if whole < len(data):
        found ^= mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ found >> shift) * factor % 2**32
    return found


def first_bytes(digest, count):
    return int.from_bytes(digest[:count], "big")


def growthbook(seed, user, version):
    if version == 1:
        return fnv1a(user + seed) % 1000 / 1000
    return fnv1a(str(fnv1a(seed + user))) % 10_000 / 10_000


def optimizely(seed, user):
    return murmur3((user + seed).encode(), 1) * 10_000 >> 32


def unleash(seed, user):
    """Of variants: from 0."""
    return murmur3(f"{seed}:{user}".encode(), 86_028_157) % 1000


def statsig(seed, rule, user):
    return first_bytes(hashlib.sha256(f"{seed}.{rule}.{user}".encode()).digest(), 8) % 10_000


def planout(seed, parameter, user):
    digest = hashlib.sha1(f"{seed}.{parameter}.{user}".encode()).digest()
    return (first_bytes(digest, 8) >> 4) / (2**60 - 1)


def eppo(seed, user):
    return eppo_of(f"{seed}-{user}")


def eppo_of(text):
    return first_bytes(hashlib.md5(text.encode()).digest(), 4) % 10_000


def arm_of(asked, user, shares):
    """The arm by its number, or None for nobody's."""
    system, seed, coverage = asked["system"], asked["seed"], asked.get("coverage", 1)
    if system == "growthbook":
        return within(growthbook(seed, user, asked.get("version", 2)), shares, coverage)
    if system == "planout":
        return within(planout(seed, asked["parameter"], user), shares, coverage)
    if system == "optimizely":
        return of_bucket(optimizely(seed, user), 10_000, shares, coverage)
    if system == "unleash":
        return of_bucket(unleash(seed, user), 1000, shares, coverage)
    if system == "statsig":
        return of_bucket(statsig(seed, asked["rule"], user), 10_000, shares, coverage)
    return of_bucket(eppo(seed, user), 10_000, shares, coverage)


def within(hashed, shares, coverage):
    """[start, start + coverage * share), as floating-point numbers are added up in JavaScript."""
    start = 0.0
    for arm, share in enumerate(shares):
        if start <= hashed < start + coverage * share:
            return arm
        start += share
    return None


def of_bucket(bucket, buckets, shares, coverage):
    """The same in whole buckets."""
    start = 0.0
    for arm, share in enumerate(shares):
        low = round(start * buckets)
        high = low + round(coverage * share * buckets) if coverage < 1 else round(
            (start + share) * buckets)
        if low <= bucket < high:
            return arm
        start += share
    return None
