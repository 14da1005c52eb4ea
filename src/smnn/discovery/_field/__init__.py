"""Discovery of partial differential equations from fields."""
