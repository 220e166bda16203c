"""The histogram task, decided on all T^L sequences."""
