"""Discovery on the polynomial systems of the collection dysts."""
