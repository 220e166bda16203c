"""The small decoder that both additions use: one module for numbers mod P and for columns of digits."""
