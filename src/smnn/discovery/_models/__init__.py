"""Model classes besides plain differential equations, and the options of the estimator."""
