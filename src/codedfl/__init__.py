"""Train one linear model over many unequal devices, quickly and privately."""
