"""Uplake's own functions as their documentation defines them, for DuckDB to call.

They follow docs/functions.md word by word and know nothing of how Uplake does it.
"""


def window_funnel(seconds, rows):
    """The documented definition of window_funnel's default mode, event by event."""
    events = []
    for row in rows.split(",") if rows else []:
        time, bits = row.split(":")
        events += [(int(time), step) for step in range(32) if int(bits) >> step & 1]
    started, longest = {}, 0
    for time, step in sorted(events):
        if step == 0:
            started[0] = time
        elif step - 1 in started and time - started[step - 1] <= seconds * 1_000_000:
            started[step] = started[step - 1]
        else:
            continue
        longest = max(longest, step + 1)
    return longest
