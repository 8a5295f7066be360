"""Fills in tables between invisible markers of Markdown pages."""


def filled(text: str, name: str, content: str) -> str:
    """Returns the text with the content between the markers of the given name replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"The page does not contain {begin.strip()} with its end marker.")
    return f"{before}{begin}{content}\n{end}{after}"
