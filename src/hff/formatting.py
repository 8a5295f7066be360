"""Numbers, shares, durations and curves as short text."""

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """A curve of one line, from the smallest value to the largest."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    low, high = min(values), max(values)
    steps = [(value - low) / (high - low) if high > low else 0.5 for value in values]
    return "".join(BARS[round(step * (len(BARS) - 1))] for step in steps)


def number(value: float | dict[str, float | None] | None, factor: float = 1.0, digits: int = 2) -> str:
    """A number, or the mean and standard deviation over seeds; empty for None."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return f"{factor * value:.{digits}f}"
    parts = [factor * part for part in (value["mean"], value["std"]) if part is not None]
    return " ± ".join(f"{part:.{digits}f}" for part in parts)


def percent(share: float | dict[str, float | None] | None) -> str:
    """A share between 0 and 1 in percent, formatted like `number`."""
    return "" if share is None else f"{number(share, 100)} %"


def in_words(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
