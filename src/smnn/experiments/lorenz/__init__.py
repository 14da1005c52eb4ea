"""Discovery of the Lorenz equations, and training of the paper's network."""
