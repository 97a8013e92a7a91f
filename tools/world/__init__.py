"""The simulated world: the product's own code on a virtual clock, on stores in memory, with everything failing."""
