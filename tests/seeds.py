"""Where tests of random statements begin: at the same seed for the same checkout, at a new one for another.

So a run that has passed passes again, on any machine, and each change is asked what no other was. `make soak`
begins at a fresh seed each time.
"""

import os
import random
import subprocess
from pathlib import Path

SEEDS = 10**9


def first(variable):
    """The first seed: that of an environment variable, of the checkout, or else a fresh one."""
    if os.environ.get(variable):
        return int(os.environ[variable])
    if not os.environ.get("UPLAKE_SOAK"):
        tree = ["git", "rev-parse", "HEAD^{tree}"]
        try:
            found = subprocess.run(tree, cwd=Path(__file__).parent, capture_output=True, text=True)
        except OSError:
            found = None
        if found is not None and found.returncode == 0:
            return int(found.stdout.strip(), 16) % SEEDS
    return random.SystemRandom().randrange(SEEDS)
