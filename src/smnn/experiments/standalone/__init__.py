"""Six linear ODEs against their closed forms, RK45 and LSODA."""
