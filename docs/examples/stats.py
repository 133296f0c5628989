"""Mean, median and spread of a list of numbers."""


def mean(values):
    """Return the arithmetic mean."""
    return sum(values) / len(values)


def median(values):
    """Return the middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def spread(values):
    """Return the difference between the largest and the smallest value."""
    return max(values) - min(values)
