"""Methods of remedies: each class carries out one `RemedyTask` and returns a `RemedyOutcome`. None raises for outside faults."""
