"""Equations as text: parsing, evaluation."""
