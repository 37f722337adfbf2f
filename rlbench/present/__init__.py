"""Shows results: tables, charts, HTML report."""
