"""Pages and tables that show results."""
