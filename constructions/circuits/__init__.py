"""Boolean circuits: files, decomposition into gates, stored weights, and the machine that runs them."""
