"""Any torch module, decided on the inputs that a file of the user names."""

SUMMARY = "decide any torch module on every input of a finite token domain"
