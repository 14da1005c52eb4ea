"""The sea surface temperature experiment of the paper."""
