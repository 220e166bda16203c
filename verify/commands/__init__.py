"""One module per subcommand: its arguments, and what it prints."""
