"""Candidate terms: libraries, their rules."""
