"""One attention layer over a bag of things: the argument at a leaf, and the domains that it is made on."""
