"""Reports about runs: one page that opens without a network, with Markdown, figures and CSV beside it."""

from hff.report.document import Document, Value
from hff.report.report import ReportFiles, make_document, write_report

__all__ = ["Document", "ReportFiles", "Value", "make_document", "write_report"]
