"""Reports on A4, drawn with ReportLab: text, charts as vectors, pages."""
