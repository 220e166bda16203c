"""What subcommands share, and those that are no task's: a task's own is in its folder."""
