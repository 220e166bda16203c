"""The precision that is provably enough for a histogram model, and the one that is too little."""
