"""What an administrator uses and sees: verbs, events, alarms and metrics."""
