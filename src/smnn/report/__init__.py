"""HTML pages, charts, tables and formulas."""
