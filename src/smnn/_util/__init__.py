"""Helpers without domain knowledge: files, machine description, optional packages."""
