"""Tables in pages, between marks that do not show."""


def filled(text: str, name: str, content: str) -> str:
    """The text with this content between the marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"There is no {begin.strip()} with its end in the page.")
    return f"{before}{begin}{content}\n{end}{after}"
