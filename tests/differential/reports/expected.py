"""What a report should say, whatever its definition is of."""
from reports.model import Report
from reports.summary import SummaryReport


def report(world, definition, asked=()):
    """`asked`: names of dimensions to break down by."""
    if "summary" in definition:
        return SummaryReport(world, definition).all()
    return Report(world, definition, asked).all()
