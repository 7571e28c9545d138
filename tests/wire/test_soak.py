"""A few seconds of tests/wire/soak.py; `make soak` runs an hour of it."""

import soak
import support


def clients_that_ask_cancel_and_vanish_leave_nothing(fresh):
    support.only_uplake("it is about what the server holds")
    server = fresh()
    figures = soak.run(server, 6, 40, 20261126)
    print(figures)
    assert figures["statements"] > 200
    assert figures["open_files"]["after"] <= figures["open_files"]["before"] + 2, figures
