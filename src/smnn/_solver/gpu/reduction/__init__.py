"""Odd-even reduction: few long sequences, and blocks of more than 256 unknowns."""
