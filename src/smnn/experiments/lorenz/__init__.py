"""The Lorenz experiment of the paper."""
