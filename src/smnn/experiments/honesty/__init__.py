"""Verdicts of equation discovery on data whose answer is known."""
