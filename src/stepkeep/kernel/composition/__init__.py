"""Plans that grow, child runs, flows, and runs that continue others."""
