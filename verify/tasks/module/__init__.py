"""Any torch module, decided on the inputs that a file of the user names."""
