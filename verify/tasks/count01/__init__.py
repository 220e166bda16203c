"""The Count01 task, decided on all counts of a domain."""
