"""Forecasts of sea surface temperature."""
