"""The administrator's view: verbs, events, alarms and metrics."""
